//! DNS messages as far as clients and a stub server of ours need them (RFC 1035, 3596, 2782).
//!
//! Decoding follows compression pointers only backwards, so it ends; whatever is not well formed
//! gives `None`.

/// Record types, by number.
pub mod kind {
    pub const A: u16 = 1;
    pub const CNAME: u16 = 5;
    pub const SOA: u16 = 6;
    pub const PTR: u16 = 12;
    pub const MX: u16 = 15;
    pub const TXT: u16 = 16;
    pub const AAAA: u16 = 28;
    pub const SRV: u16 = 33;
    pub const OPT: u16 = 41;
}

/// Response codes.
pub const NXDOMAIN: u8 = 3;
pub const SERVFAIL: u8 = 2;
pub const REFUSED: u8 = 5;

/// A decoded message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub id: u16,
    /// The header's flags without the response code.
    pub flags: u16,
    pub rcode: u8,
    pub questions: Vec<(String, u16)>,
    pub answers: Vec<Record>,
    pub authority: Vec<Record>,
    /// Without the OPT record.
    pub additional: Vec<Record>,
    pub edns: bool,
}

/// A record; its data as text, names without the last dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    pub name: String,
    pub kind: u16,
    pub ttl: u32,
    pub data: String,
}

/// A query for one name, with recursion desired and, on demand, an OPT record.
#[must_use]
pub fn query(id: u16, name: &str, kind: u16, edns: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [id, 0x0100, 1, 0, 0, u16::from(edns)] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    put_name(&mut out, name);
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&1_u16.to_be_bytes());
    if edns {
        // Root name, OPT, 1232 bytes (what fits every path, dnsflagday.net/2020), nothing else.
        out.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    }
    out
}

/// A reply to a query with one question: its answers, or a start-of-authority record when `soa`
/// names a zone.
#[must_use]
pub fn reply(query: &[u8], rcode: u8, answers: &[Record], soa: Option<&str>) -> Option<Vec<u8>> {
    let asked = decode(query)?;
    let (name, kind) = asked.questions.first()?;
    let mut out = Vec::new();
    let counts = [
        asked.id,
        0x8180 | u16::from(rcode),
        1,
        u16::try_from(answers.len()).ok()?,
        soa.is_some().into(),
        asked.edns.into(),
    ];
    for word in counts {
        out.extend_from_slice(&word.to_be_bytes());
    }
    put_name(&mut out, name);
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&1_u16.to_be_bytes());
    for record in answers {
        put_record(&mut out, record)?;
    }
    if let Some(zone) = soa {
        put_name(&mut out, zone);
        let mut data = Vec::new();
        put_name(&mut data, &format!("ns.{zone}"));
        put_name(&mut data, &format!("post.{zone}"));
        for number in [1_u32, 3600, 600, 86_400, 300] {
            data.extend_from_slice(&number.to_be_bytes());
        }
        put_tail(&mut out, kind::SOA, 300, &data)?;
    }
    if asked.edns {
        out.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    }
    Some(out)
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    for label in name.split('.').filter(|label| !label.is_empty()) {
        out.push(u8::try_from(label.len()).unwrap_or(63));
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
}

fn put_record(out: &mut Vec<u8>, record: &Record) -> Option<()> {
    put_name(out, &record.name);
    let mut data = Vec::new();
    match record.kind {
        kind::A => data.extend(record.data.parse::<std::net::Ipv4Addr>().ok()?.octets()),
        kind::AAAA => data.extend(record.data.parse::<std::net::Ipv6Addr>().ok()?.octets()),
        kind::CNAME | kind::PTR => put_name(&mut data, &record.data),
        kind::TXT => {
            for part in record.data.as_bytes().chunks(255) {
                data.push(u8::try_from(part.len()).ok()?);
                data.extend_from_slice(part);
            }
        }
        _ => return None,
    }
    put_tail(out, record.kind, record.ttl, &data)
}

fn put_tail(out: &mut Vec<u8>, kind: u16, ttl: u32, data: &[u8]) -> Option<()> {
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&1_u16.to_be_bytes());
    out.extend_from_slice(&ttl.to_be_bytes());
    out.extend_from_slice(&u16::try_from(data.len()).ok()?.to_be_bytes());
    out.extend_from_slice(data);
    Some(())
}

/// Decodes a whole message; bytes behind it are an error.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Message> {
    let mut reader = Reader { bytes, at: 0 };
    let [id, flags, questions, answers, authority, additional] = [(); 6]
        .map(|()| reader.u16())
        .map(Option::unwrap_or_default);
    bytes.get(..12)?;
    let mut message = Message {
        id,
        flags: flags & !0xf,
        rcode: (flags & 0xf).to_le_bytes()[0],
        questions: Vec::new(),
        answers: Vec::new(),
        authority: Vec::new(),
        additional: Vec::new(),
        edns: false,
    };
    for _ in 0..questions {
        let name = reader.name()?;
        let kind = reader.u16()?;
        reader.u16()?;
        message.questions.push((name, kind));
    }
    for _ in 0..answers {
        message.answers.push(reader.record()?);
    }
    for _ in 0..authority {
        message.authority.push(reader.record()?);
    }
    for _ in 0..additional {
        let record = reader.record()?;
        if record.kind == kind::OPT {
            message.edns = true;
        } else {
            message.additional.push(record);
        }
    }
    (reader.at == bytes.len()).then_some(message)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let part = self.bytes.get(self.at..self.at + count)?;
        self.at += count;
        Some(part)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn name(&mut self) -> Option<String> {
        let mut labels: Vec<String> = Vec::new();
        let (mut at, mut after) = (self.at, None);
        loop {
            let length = *self.bytes.get(at)?;
            if length >= 192 {
                let low = *self.bytes.get(at + 1)?;
                after.get_or_insert(at + 2);
                let to = usize::from(length & 63) << 8 | usize::from(low);
                // Backwards only, or a message could point into itself for ever.
                (to < at).then_some(())?;
                at = to;
                continue;
            }
            let label = self.bytes.get(at + 1..at + 1 + usize::from(length))?;
            at += 1 + usize::from(length);
            if length == 0 {
                break;
            }
            labels.push(String::from_utf8_lossy(label).into_owned());
        }
        self.at = after.unwrap_or(at);
        Some(labels.join("."))
    }

    fn record(&mut self) -> Option<Record> {
        let name = self.name()?;
        let kind = self.u16()?;
        let _class = self.u16()?;
        let ttl = self.u32()?;
        let length = usize::from(self.u16()?);
        let end = self.at + length;
        let data = match kind {
            kind::A => {
                let octets: [u8; 4] = self.take(4)?.try_into().ok()?;
                std::net::Ipv4Addr::from(octets).to_string()
            }
            kind::AAAA => {
                let octets: [u8; 16] = self.take(16)?.try_into().ok()?;
                std::net::Ipv6Addr::from(octets).to_string()
            }
            kind::CNAME | kind::PTR => self.name()?,
            kind::MX => format!("{} {}", self.u16()?, self.name()?),
            kind::SRV => format!(
                "{} {} {} {}",
                self.u16()?,
                self.u16()?,
                self.u16()?,
                self.name()?
            ),
            kind::TXT => {
                let mut text = String::new();
                while self.at < end {
                    let part = usize::from(self.take(1)?[0]);
                    text += &String::from_utf8_lossy(self.take(part)?);
                }
                text
            }
            _ => self
                .take(length)?
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        };
        (self.at == end).then_some(Record {
            name,
            kind,
            ttl,
            data,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let query = query(7, "a.up.example", kind::A, true);
        let asked = decode(&query).unwrap();
        assert_eq!((asked.id, asked.edns), (7, true));
        assert_eq!(asked.questions, [("a.up.example".to_owned(), kind::A)]);
        let record = |kind, data: &str| Record {
            name: "a.up.example".to_owned(),
            kind,
            ttl: 60,
            data: data.to_owned(),
        };
        let records = [
            record(kind::A, "192.0.2.1"),
            record(kind::AAAA, "2001:db8::1"),
            record(kind::CNAME, "b.up.example"),
            record(kind::TXT, &"long ".repeat(100)),
        ];
        let reply = reply(&query, NXDOMAIN, &records, Some("up.example")).unwrap();
        let told = decode(&reply).unwrap();
        assert_eq!((told.rcode, told.answers), (NXDOMAIN, records.to_vec()));
        assert_eq!(told.authority.len(), 1);
        for cut in 0..reply.len() {
            assert_eq!(decode(&reply[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn names_that_point_at_themselves_end() {
        let mut bytes = query(1, "a", kind::A, false);
        bytes[12..14].copy_from_slice(&[0xc0, 12]);
        assert_eq!(decode(&bytes), None);
    }
}
