//! What of the fault grammar this service has: objects, messages and queues of replicas that vote. `steadfast_fault` reads the line.
//!
//! Not covered: when. An object is struck as soon as the replica hears of it, a message as the next of its kind leaves.

use steadfast_fault::{FaultError, Passing, Place, ServiceFault};

use crate::store;

/// Reads a line, for a group of `size`.
pub(crate) fn read(line: &str, size: usize) -> Result<ServiceFault, FaultError> {
    let fault: ServiceFault = line.parse()?;
    if usize::from(fault.replica().0) >= size {
        let numbers = format!(
            "this group has the replicas 0 to {}",
            size.saturating_sub(1)
        );
        return Err(FaultError::beyond(line, "replica", numbers, "replica=1"));
    }
    if let Place::Head { byte, .. } = fault.place()
        && *byte as usize >= store::HEAD_LENGTH
    {
        let bytes = format!("log:head has the bytes 0 to {}", store::HEAD_LENGTH - 1);
        return Err(FaultError::beyond(line, "byte", bytes, "byte=24"));
    }
    Ok(fault)
}

/// What was hit, in the words in which a repair names it.
pub(crate) fn described(place: &Place) -> String {
    match place {
        Place::Stored {
            object,
            field,
            byte,
            bit,
        } => {
            let field = field.word().replace('-', " ");
            format!("{object} {field} byte {byte} bit {bit}")
        }
        Place::Head { byte, bit } => {
            let place = store::place_in_head(*byte as usize);
            format!("log:head {} byte {} bit {bit}", place.field, place.byte)
        }
        Place::Next { passing, bit } => format!("the next {passing}, bit {bit}"),
    }
}

/// Whether there is nothing of the kind where replicas do not vote.
pub(crate) const fn needs_votes(passing: Passing) -> bool {
    !matches!(
        passing,
        Passing::Entry | Passing::Submit | Passing::Log | Passing::Run
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_where() {
        for (line, what) in [
            (
                "replica=1 object=item:a byte=2 bit=3",
                "item:a value byte 2 bit 3",
            ),
            (
                "replica=1 object=item:a field=key-length byte=0 bit=3",
                "item:a key length byte 0 bit 3",
            ),
            (
                "replica=1 object=client:web-1 byte=9 bit=0",
                "client:web-1 value byte 9 bit 0",
            ),
            (
                "replica=1 object=log:head byte=24 bit=0",
                "log:head cas byte 0 bit 0",
            ),
            (
                "replica=1 message=reply bit=77",
                "the next message=reply, bit 77",
            ),
        ] {
            let fault = read(line, 3).unwrap();
            assert_eq!(fault.replica().0, 1);
            assert_eq!(described(fault.place()), what);
        }
    }

    #[test]
    fn what_this_group_does_not_have_is_refused_as_the_grammar_does() {
        // The mark (^) stands where the line is wrong.
        for (marked, requirement) in [
            (
                "^replica=3 object=item:a byte=2 bit=3",
                "this group has the replicas 0 to 2",
            ),
            (
                "replica=1 object=log:head ^byte=56 bit=0",
                "log:head has the bytes 0 to 55",
            ),
        ] {
            let why = read(&marked.replace('^', ""), 3).unwrap_err();
            assert_eq!(why.requirement, requirement);
            assert_eq!(Some(why.column), marked.find('^').map(|at| at + 1));
            assert!(!why.fix.is_empty());
        }
    }

    /// The grammar names the fields of an item, the store has them.
    #[test]
    fn each_field_of_the_grammar_is_one_of_an_item() {
        // The length of a key is byte 20 of a packed item, and 26 bytes stand before it.
        let mut item = vec![0; 20];
        item.extend([3, 0, 5, 0, 0, 0]);
        item.extend(b"keyvalue");
        let has = |name: &str| (0..item.len()).any(|at| store::place(&item, at).field == name);
        for field in steadfast_fault::Field::ALL {
            let name = field.word().replace('-', " ");
            assert!(has(&name), "{field}");
        }
    }
}
