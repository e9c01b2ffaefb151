//! A client of the memory manager: it knows where every page is mapped.

use steadfast_restart::{CallError, Edge, Handle, Value};

use super::counts::{Counts, functions};
use crate::told::Told;

const PAGES: [&str; 4] = [
    "steadfast:memory/pages@0.1.0#[constructor]page",
    "steadfast:memory/pages@0.1.0#[method]page.alias",
    "steadfast:memory/pages@0.1.0#[method]page.mappings",
    "steadfast:memory/pages@0.1.0#revoke",
];

/// Aliases of a page at most, then one is revoked.
const ALIASES: usize = 3;

struct Page {
    handle: Handle,
    /// Whether it is the handle that was made at first.
    first: bool,
    /// Aliases with their spaces, in order.
    aliases: Vec<(Handle, u32)>,
}

/// Grants pages, aliases them and revokes the aliases.
pub(crate) struct Pages<'a> {
    edge: &'a Edge,
    functions: [usize; 4],
    pages: Vec<Page>,
    pub(super) counts: Counts,
}

/// Where page `place` is mapped in a space.
fn mapping(place: usize, space: u32) -> Value {
    let address = (place as u64) << 12;
    Value::Record(vec![
        ("space".into(), space.into()),
        ("address".into(), address.into()),
    ])
}

impl<'a> Pages<'a> {
    pub(super) fn new(edge: &'a Edge, handles: usize) -> Result<Self, Told> {
        let mut client = Self {
            edge,
            functions: functions(edge, PAGES)?,
            pages: Vec::new(),
            counts: Counts::default(),
        };
        for place in 0..handles {
            let handle = client.grant(place);
            let handle = handle.ok_or_else(|| anyhow::anyhow!("the component made no page"))?;
            client.pages.push(Page {
                handle,
                first: true,
                aliases: Vec::new(),
            });
        }
        Ok(client)
    }

    fn grant(&self, place: usize) -> Option<Handle> {
        let frame = u32::try_from(place).unwrap_or(0);
        let args = [frame.into(), 0u32.into(), ((place as u64) << 12).into()];
        let made = self.edge.call(self.functions[0], &args).ok().flatten();
        made?.handle()
    }

    fn alias(&mut self, place: usize) -> Result<(), CallError> {
        let page = &self.pages[place];
        let space = page.aliases.last().map_or(1, |(_, space)| space + 1);
        let address = (place as u64) << 12;
        let args = [page.handle.into(), space.into(), address.into()];
        let made = self.edge.call(self.functions[1], &args)?;
        match made.and_then(|value| value.handle()) {
            Some(alias) => self.pages[place].aliases.push((alias, space)),
            None => self.counts.wrong += 1,
        }
        Ok(())
    }

    /// Revokes the oldest alias, which maps nothing but itself.
    fn revoke(&mut self, place: usize) -> Result<(), CallError> {
        let (alias, space) = self.pages[place].aliases[0];
        let found = self.edge.call(self.functions[3], &[alias.into()])?;
        let right = Value::List(vec![mapping(place, space)]);
        self.counts.wrong += u64::from(found != Some(right));
        self.pages[place].aliases.remove(0);
        Ok(())
    }

    fn look(&self, place: usize) -> Result<bool, CallError> {
        let page = &self.pages[place];
        let spaces = std::iter::once(0).chain(page.aliases.iter().map(|(_, space)| *space));
        let right = Value::List(spaces.map(|space| mapping(place, space)).collect());
        let found = self.edge.call(self.functions[2], &[page.handle.into()])?;
        Ok(found == Some(right))
    }

    pub(super) fn round(&mut self) {
        for place in 0..self.pages.len() {
            self.counts.calls += 2;
            let changed = match self.pages[place].aliases.len() {
                ALIASES => self.revoke(place),
                _ => self.alias(place),
            };
            let looked = changed.and_then(|()| self.look(place));
            match looked {
                Ok(right) => self.counts.wrong += u64::from(!right),
                Err(CallError::Stale { .. } | CallError::Failed { .. }) => {
                    self.counts.lost += 1;
                    if let Some(handle) = self.grant(place) {
                        let (first, aliases) = (false, Vec::new());
                        self.pages[place] = Page {
                            handle,
                            first,
                            aliases,
                        };
                    }
                }
                Err(_) => {}
            }
        }
    }

    pub(super) fn kept(&self) -> usize {
        let right = |place: &usize| self.pages[*place].first && self.look(*place) == Ok(true);
        (0..self.pages.len()).filter(right).count()
    }
}
