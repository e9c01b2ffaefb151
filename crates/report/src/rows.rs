//! Every run as a row of CSV, for other tools.
//!
//! Not covered: evidence, which stays in the campaign's directory.

use crate::results::Results;

/// Column names, in order. Columns may be added at the end.
const COLUMNS: [&str; 22] = [
    "id",
    "fault_type",
    "outcome",
    "leaf",
    "fault",
    "module",
    "offset",
    "function",
    "line",
    "opcode",
    "disassembly",
    "register",
    "bits",
    "status",
    "signal",
    "differ",
    "detected_by",
    "latency_ns",
    "wall_ns",
    "cpu_ns",
    "evidence",
    "replay",
];

/// RFC 4180, one row a run, with a header.
#[must_use]
pub fn csv(results: &Results) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing to memory does not fail.
    let _ = writer.write_record(COLUMNS);
    for run in &results.runs {
        let number = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
        let signed = |n: Option<i32>| n.map_or(String::new(), |n| n.to_string());
        let place = run.place.clone().unwrap_or_default();
        let bits: Vec<String> = run.bits.iter().map(ToString::to_string).collect();
        let group = results
            .groups
            .get(run.group)
            .map_or("", |group| group.name.as_str());
        let _ = writer.write_record([
            run.id.to_string(),
            group.to_owned(),
            run.leaf.outcome().word().to_owned(),
            run.leaf.word().to_owned(),
            run.fault.clone(),
            place.module,
            place.offset,
            place.function.unwrap_or_default(),
            place.line.unwrap_or_default(),
            place.opcode,
            place.disassembly,
            run.register.clone().unwrap_or_default(),
            bits.join(" "),
            signed(run.status),
            signed(run.signal),
            run.differ.join(" "),
            run.detection
                .as_ref()
                .map_or(String::new(), |d| d.by.clone()),
            number(run.detection.as_ref().and_then(|d| d.latency_ns)),
            run.wall_ns.to_string(),
            run.cpu_ns.to_string(),
            run.evidence.clone().unwrap_or_default(),
            run.replay.clone(),
        ]);
    }
    String::from_utf8_lossy(&writer.into_inner().unwrap_or_default()).into_owned()
}
