// A second thread, through the Rust library.
fn main() {
    println!("before");
    let sum = std::thread::spawn(|| (1..=10).sum::<u32>())
        .join()
        .expect("thread");
    println!("{sum}");
}
