//! What is answered beside the log.

use steadfast_crosscheck::ObjectId;

use super::item::{STALE, WON};
use super::reply::{Said, put_value};
use super::{Head, Store, item_id, shard_of};
use crate::request::Request;

impl Store {
    /// Objects that a read looks at.
    pub(crate) fn objects_of(request: &Request) -> impl Iterator<Item = ObjectId> {
        let keys = match request {
            Request::Get { keys, .. } => keys.as_slice(),
            Request::MetaGet { key, .. } => std::slice::from_ref(key),
            _ => &[],
        };
        keys.iter().map(|key| item_id(key))
    }

    /// What a read is answered beside the log: nothing is touched, and nothing removed. With `checked` an item that is missing, over, or does
    /// not fit its digest has no answer here.
    pub(crate) fn peek(
        &self,
        request: &Request,
        head: &Head,
        now_ms: u64,
        checked: bool,
    ) -> Option<Vec<u8>> {
        // A flush that is due by now, and that no entry has carried out, is none of a read beside the log.
        if head.flush_at_ms != 0 && head.flush_at_ms <= now_ms {
            return None;
        }
        let find = |key: &[u8]| {
            let id = item_id(key);
            let item = self.shards[shard_of(id)].get(&id.0)?;
            let view = item.view()?;
            let over = view.expires != 0 && view.expires <= now_ms;
            (view.key == key && !over && view.cas > head.flushed).then_some((item, view))
        };
        match request {
            Request::Get { keys, cas, .. } => {
                let mut reply = Vec::new();
                for key in keys {
                    match find(key) {
                        Some((item, view)) => {
                            let said = put_value(&view, *cas, &mut reply);
                            if checked && !item.is(&reply[said.key], &reply[said.value]) {
                                return None;
                            }
                        }
                        None if checked => return None,
                        None => {}
                    }
                }
                reply.extend_from_slice(b"END\r\n");
                Some(reply)
            }
            Request::MetaGet { key, form, .. } => {
                let found = find(key);
                // Who reads a stale item first is told so, and nobody else: that changes it.
                if found.is_some_and(|(_, view)| view.marks & (STALE | WON) == STALE) {
                    return None;
                }
                if checked && !found.is_some_and(|(item, _)| item.intact()) {
                    return None;
                }
                let said = if found.is_some() {
                    Said::Found
                } else {
                    Said::Miss
                };
                let view = found.map(|(_, view)| view);
                let reply = form.meta(said, key, view, false, now_ms);
                // As above: what the reply has for a value is compared after it was put there.
                let right = found.is_none_or(|(item, _)| {
                    let end = reply.len().saturating_sub(2);
                    let start = end.saturating_sub(item.view().map_or(0, |v| v.value.len()));
                    !form.shows_value() || item.is(key, reply.get(start..end).unwrap_or_default())
                });
                (!checked || right).then_some(reply)
            }
            _ => None,
        }
    }
}
