//! A mutex that lends its holder the priority of whoever waits, and that says so instead of hanging when its holder asks again.
//!
//! Invariants
//!  1. While a thread holds the lock it runs at least at the priority of the most urgent waiter (PTHREAD_PRIO_INHERIT).
//!  2. A second lock by the holder is an error, never a deadlock.
//!
//! See pthread_mutexattr_setprotocol(3), futex(2) FUTEX_LOCK_PI.

#![allow(
    unsafe_code,
    reason = "std's mutex has no priority inheritance; pthread's lives behind raw pointers"
)]

use std::cell::UnsafeCell;
use std::io;
use std::ops::{Deref, DerefMut};

/// A value behind a lock with priority inheritance.
pub struct PiMutex<T> {
    // Boxed: a pthread mutex must not move.
    lock: Box<UnsafeCell<libc::pthread_mutex_t>>,
    value: UnsafeCell<T>,
}

impl<T> std::fmt::Debug for PiMutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PiMutex")
    }
}

// SAFETY: the value is reached through the lock alone.
unsafe impl<T: Send> Send for PiMutex<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for PiMutex<T> {}

/// The thread that asks holds the lock already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reentered;

impl<T> PiMutex<T> {
    /// A lock around a value.
    ///
    /// # Errors
    /// Where the kernel has no priority inheritance (ENOTSUP).
    pub fn new(value: T) -> io::Result<Self> {
        let lock = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        let mut attr = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attr = attr.as_mut_ptr();
        // SAFETY: the attribute lives until the end of this function.
        let mut rc = unsafe { libc::pthread_mutexattr_init(attr) };
        if rc == 0 {
            // SAFETY: the attribute is initialised.
            rc = unsafe { libc::pthread_mutexattr_settype(attr, libc::PTHREAD_MUTEX_ERRORCHECK) };
        }
        if rc == 0 {
            // SAFETY: as above.
            rc = unsafe { libc::pthread_mutexattr_setprotocol(attr, libc::PTHREAD_PRIO_INHERIT) };
        }
        if rc == 0 {
            // SAFETY: as above, and the mutex does not move any more.
            rc = unsafe { libc::pthread_mutex_init(lock.get(), attr) };
        }
        if rc == 0 {
            Ok(Self {
                lock,
                value: UnsafeCell::new(value),
            })
        } else {
            Err(io::Error::from_raw_os_error(rc))
        }
    }

    /// Takes the lock.
    ///
    /// # Errors
    /// [`Reentered`] when this thread holds it.
    ///
    /// # Panics
    /// When the mutex itself is damaged.
    pub fn lock(&self) -> Result<PiGuard<'_, T>, Reentered> {
        // SAFETY: the mutex was initialised by `new`.
        match unsafe { libc::pthread_mutex_lock(self.lock.get()) } {
            0 => Ok(PiGuard {
                of: self,
                here: std::marker::PhantomData,
            }),
            libc::EDEADLK => Err(Reentered),
            other => panic!(
                "pthread_mutex_lock: {}",
                io::Error::from_raw_os_error(other)
            ),
        }
    }

    /// Takes the lock if nobody holds it.
    ///
    /// # Panics
    /// When the mutex itself is damaged.
    pub fn try_lock(&self) -> Option<PiGuard<'_, T>> {
        // SAFETY: the mutex was initialised by `new`.
        match unsafe { libc::pthread_mutex_trylock(self.lock.get()) } {
            0 => Some(PiGuard {
                of: self,
                here: std::marker::PhantomData,
            }),
            libc::EBUSY | libc::EDEADLK => None,
            other => panic!(
                "pthread_mutex_trylock: {}",
                io::Error::from_raw_os_error(other)
            ),
        }
    }
}

impl<T> Drop for PiMutex<T> {
    fn drop(&mut self) {
        // SAFETY: &mut self: nobody holds it.
        unsafe { libc::pthread_mutex_destroy(self.lock.get()) };
    }
}

/// The lock, held.
pub struct PiGuard<'a, T> {
    of: &'a PiMutex<T>,
    /// Only the thread that took it may give it back.
    here: std::marker::PhantomData<*const ()>,
}

impl<T> std::fmt::Debug for PiGuard<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let _ = self.here;
        f.write_str("PiGuard")
    }
}

impl<T> Deref for PiGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock.
        unsafe { &*self.of.value.get() }
    }
}

impl<T> DerefMut for PiGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this thread holds the lock, through this guard alone.
        unsafe { &mut *self.of.value.get() }
    }
}

impl<T> Drop for PiGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this thread holds the lock.
        unsafe { libc::pthread_mutex_unlock(self.of.lock.get()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_refused_and_others_wait() {
        let lock = PiMutex::new(0).expect("priority inheritance");
        let guard = lock.lock().expect("free");
        assert_eq!(lock.lock().err(), Some(Reentered));
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert!(lock.try_lock().is_some());
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..1000 {
                        *lock.lock().expect("not held by this thread") += 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock().expect("free"), 4000);
    }
}
