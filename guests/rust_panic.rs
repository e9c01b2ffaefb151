// Panics: caught by catch_unwind with destructors run, then one that nobody catches, status 101.
use std::panic;

struct Loud(u32);
impl Drop for Loud {
    fn drop(&mut self) {
        println!("drop {}", self.0);
    }
}

fn deep(n: u32) -> u32 {
    let _l = Loud(n);
    if n == 0 {
        panic!("at the bottom")
    } else {
        deep(n - 1) + 1
    }
}

fn main() {
    panic::set_hook(Box::new(|i| {
        eprintln!(
            "panic: {}",
            i.payload().downcast_ref::<&str>().unwrap_or(&"?")
        )
    }));
    println!("caught: {}", panic::catch_unwind(|| deep(5)).is_err());
    deep(2);
}
