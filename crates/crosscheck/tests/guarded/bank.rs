//! A service written with guarded objects: accounts, transfers, and a journal of them.

use steadfast_crosscheck::{Arena, Critical, Ref, State, critical};

#[derive(Critical)]
pub(crate) struct Account {
    pub(crate) owner: String,
    pub(crate) cents: i64,
    pub(crate) last: Option<Ref<Transfer>>,
    #[critical(skip = "statistics: answers for one replica")]
    pub(crate) reads: u64,
}

#[critical]
impl Account {
    #[critical(only(cents))]
    fn pay_in(&mut self, cents: i64) {
        self.cents += cents;
    }

    fn told(&self) -> String {
        format!("{} has {}", self.owner, self.cents)
    }
}

#[derive(Critical)]
pub(crate) struct Transfer {
    pub(crate) from: Ref<Account>,
    pub(crate) to: Ref<Account>,
    pub(crate) cents: i64,
}

#[derive(State, Default)]
pub(crate) struct Bank {
    pub(crate) accounts: Arena<Account>,
    pub(crate) transfers: Arena<Transfer>,
}

#[derive(Clone)]
pub(crate) enum Request {
    Open(&'static str),
    Deposit(&'static str, i64),
    Transfer(&'static str, &'static str, i64),
    Balance(&'static str),
    Last(&'static str),
    Close(&'static str),
}

pub(crate) fn account(name: &str) -> Ref<Account> {
    Ref::named(name.as_bytes())
}

impl Bank {
    pub(crate) fn execute(&mut self, request: &Request) -> String {
        self.try_to(request)
            .unwrap_or_else(|| "no such account".to_owned())
    }

    fn try_to(&mut self, request: &Request) -> Option<String> {
        Some(match *request {
            Request::Open(name) => {
                let new = Account {
                    owner: name.to_owned(),
                    cents: 0,
                    last: None,
                    reads: 0,
                };
                self.accounts.put(account(name), new);
                "opened".to_owned()
            }
            Request::Deposit(name, cents) => {
                self.accounts.at(account(name)).pay_in(cents)?;
                "paid in".to_owned()
            }
            Request::Transfer(from, to, cents) => {
                self.accounts.read(account(to))?;
                if self.accounts.read(account(from))?.cents < cents {
                    return Some("not enough".to_owned());
                }
                let (from, to) = (account(from), account(to));
                let transfer = self.transfers.create(Transfer { from, to, cents });
                for (account, change) in [(from, -cents), (to, cents)] {
                    let fields = [AccountField::Cents, AccountField::Last];
                    let mut account = self.accounts.write_only(account, &fields)?;
                    account.cents += change;
                    account.last = Some(transfer);
                }
                "moved".to_owned()
            }
            Request::Balance(name) => self.accounts.at(account(name)).told()?,
            Request::Last(name) => {
                let transfer = self.accounts.read(account(name))?.last?;
                let transfer = self.transfers.read(transfer)?;
                let to = &self.accounts.read(transfer.to)?.owner;
                format!("{} to {to}", transfer.cents)
            }
            Request::Close(name) => {
                let closed = self.accounts.remove(account(name))?;
                format!("{} was paid out", closed.cents)
            }
        })
    }
}
