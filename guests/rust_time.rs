// Instant and SystemTime: never backwards, sleep at least as long as asked.
use std::time::{Duration, Instant, SystemTime};

fn main() {
    let (wall, mut last) = (SystemTime::now(), Instant::now());
    let mut ok = true;
    for _ in 0..10_000 {
        let now = Instant::now();
        ok &= now >= last;
        last = now;
    }
    std::thread::sleep(Duration::from_millis(20));
    println!("in order: {ok}");
    println!("slept: {}", last.elapsed() >= Duration::from_millis(20));
    println!(
        "wall: {}",
        wall.elapsed().is_ok_and(|d| d >= Duration::from_millis(20))
    );
}
