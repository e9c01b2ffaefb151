//! Primary: the site whose kernel answers for sockets, time and standard streams.
//!
//! From the greeting to the program's first event; lead.rs has the rest.

use std::sync::Arc;
use std::time::Duration;

use steadfast_replica::site::{Part, Place};

use crate::alone::{self, Address};
use crate::bring;
use crate::cli::{Right, Side};
use crate::control::Outcome;
use crate::crew::Crew;
use crate::error::{PairError, unheld};
use crate::files::Files;
use crate::hex::{hex, unhex};
use crate::lead::Leading;
use crate::ledger::Ledger;
use crate::link::{self, Greeting, Link, Manifest, Receiver, Sender, Tag, answer, connect};
use crate::prepare;
use crate::status::{Source, begin};
use crate::tls::Security;

fn greet(
    mut prepared: prepare::Prepared,
    sender: &Sender,
    receiver: &mut Receiver,
) -> Result<(prepare::Prepared, Ledger), PairError> {
    let mut random = [0; 16];
    steadfast_sys::random::fill(&mut random).map_err(|source| PairError::Kernel {
        part: "randomness",
        source,
    })?;
    prepared.greeting.random = hex(&random);
    sender
        .say(Tag::Greeting, &prepared.greeting)
        .map_err(PairError::Link)?;
    let theirs: Greeting = answer(receiver, Tag::Greeting)?;
    if let Some((what, here, there)) = prepared.greeting.differences(&theirs).into_iter().next() {
        return Err(PairError::Unequal { what, here, there });
    }
    let mut ledger = Ledger::open(&prepared.ledger_dir)?;
    let mut own = prepare::manifest(&prepared.data, &ledger)?;
    let mut theirs: Manifest = answer(receiver, Tag::Manifest)?;
    match prepared.greeting.right {
        None => {}
        Some(Right::Primary) => {
            bring::verify(&own, &ledger)?;
            bring::send(sender, &own, &theirs)?.tell("the secondary gets");
            theirs = answer(receiver, Tag::Manifest)?;
        }
        Some(Right::Secondary) => {
            sender.say(Tag::Manifest, &own).map_err(PairError::Link)?;
            bring::receive(receiver, &prepared.data)?.tell("the secondary has given");
            own = prepare::manifest(&prepared.data, &ledger)?;
            own.forget_wrong();
        }
    }
    if prepared.greeting.right.is_some() {
        theirs.forget_wrong();
    }
    let lines = prepare::differences(&own, &theirs);
    if !lines.is_empty() {
        return Err(PairError::Files { lines });
    }
    prepare::enrol(&mut ledger, &own)?;
    sender.say(Tag::Ready, &()).map_err(PairError::Link)?;
    Ok((prepared, ledger))
}

/// Runs the program as primary; how that ended.
pub(crate) fn run(side: &Side) -> Result<Outcome, PairError> {
    let prepared = prepare::prepare(side)?;
    let mut address = side.address.as_deref().map(Address::guarded).transpose()?;
    let hold = alone::hold(side, address.as_ref())?;
    let security = Security::of(side)?;
    let (sender, mut receiver) = link::halves(security.connected(connect(side)?)?);
    let greeted = greet(prepared, &sender, &mut receiver);
    if let Err(error) = &greeted {
        let _ = sender.say(Tag::Refusal, &error.to_string());
    }
    let (prepared, ledger) = greeted?;
    let random = unhex(&prepared.greeting.random)
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .unwrap_or_default();
    let site = Arc::new(prepare::start(&prepared, Part::Primary, random, None)?);
    let started = receiver.expect(Tag::Ready).map_err(PairError::Link);
    if let Err(error) = started.and_then(|_| {
        sender
            .say(Tag::Go, &site.program_number())
            .map_err(PairError::Link)
    }) {
        steadfast_sys::child::end(site.pid());
        return Err(error);
    }
    let lost_after = Duration::from_millis(side.lost_after);
    sender.expect_within(lost_after).map_err(PairError::Link)?;
    let greeting = prepared.greeting;
    let mut files = Files::new(ledger, prepared.data);
    files
        .clients
        .lead(hold)
        .and_then(|()| files.clients.pair_up(true))
        .map_err(unheld)?;
    let files = files.shared();
    let source = Source::new(Part::Primary, side, &site, &files, &greeting.random);
    let (board, notify) = begin(source, side)?;
    if let Some(address) = &mut address {
        address.take()?;
        address.announce();
    }
    site.go()?;
    let link = Link {
        sender: Arc::new(sender),
        receiver,
        name: greeting.random.clone(),
    };
    let leading = Leading {
        side,
        crew: Crew::new(side, &site, &files),
        site,
        files,
        board,
        notify,
        greeting,
        security,
        address,
        unasked: None,
        gave_away: false,
    };
    leading.run(Some(link), Place::first())
}
