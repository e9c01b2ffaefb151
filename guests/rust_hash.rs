// HashMap with its random keys: iteration order goes where replicas compare it, the sorted order is printed.
use std::collections::HashMap;
use std::fs;

fn main() {
    let map: HashMap<u32, String> = (0..1000)
        .map(|i| (i * 7919 % 1009, format!("value {i}")))
        .collect();
    let order: Vec<u8> = map.keys().flat_map(|k| k.to_le_bytes()).collect();
    fs::write("/dev/null", &order).expect("sink");
    let mut keys: Vec<_> = map.keys().copied().collect();
    keys.sort_unstable();
    println!(
        "{} keys, first {:?}, {}",
        keys.len(),
        &keys[..3],
        map[&keys[2]]
    );
}
