//! The service's functions in C, as the driver calls them.

use std::ffi::{CString, c_char, c_void};
use std::ptr;

use steadfast_crosscheck::{Index, ObjectId, Objects, Pair};
use steadfast_group::driver::{Machine, News};

use crate::{Bytes, Named, Wide};

type Of<F> = Option<F>;

/// `sf_cc_service`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Service {
    state: *mut c_void,
    pub(crate) epoch: u64,
    begin: Of<unsafe extern "C" fn(*mut c_void, u64)>,
    execute: Of<unsafe extern "C" fn(*mut c_void, u64, *const u8, usize, *mut Bytes)>,
    end: Of<unsafe extern "C" fn(*mut c_void, *mut Named)>,
    pack: Of<unsafe extern "C" fn(*mut c_void, Wide, *mut Bytes) -> bool>,
    intact: Of<unsafe extern "C" fn(*mut c_void, Wide) -> bool>,
    replace: Of<unsafe extern "C" fn(*mut c_void, Wide, *const u8, usize)>,
    objects: Of<unsafe extern "C" fn(*mut c_void, *mut Named)>,
    look: Of<unsafe extern "C" fn(*mut c_void, Wide)>,
    told: Of<unsafe extern "C" fn(*mut c_void, *const c_char)>,
}

impl Service {
    /// Whether all functions are there that have to be.
    pub(crate) fn check(&self) -> Result<(), String> {
        let missing = [
            ("begin", self.begin.is_none()),
            ("execute", self.execute.is_none()),
            ("end", self.end.is_none()),
            ("pack", self.pack.is_none()),
            ("intact", self.intact.is_none()),
            ("replace", self.replace.is_none()),
            ("objects", self.objects.is_none()),
            ("look", self.look.is_none()),
        ];
        match missing.iter().find(|(_, missing)| *missing) {
            Some((name, _)) => Err(format!(
                "sf_cc_service: requirement: the function {name}; found: NULL"
            )),
            None => Ok(()),
        }
    }
}

/// The service, called from the driver's thread alone.
#[derive(Debug)]
pub struct Words(pub(crate) Service);

// SAFETY: the header's first rule: one thread calls the functions, and nothing else touches what they touch.
unsafe impl Send for Words {}

impl Words {
    pub(crate) const fn again(&self) -> Self {
        Self(self.0)
    }
}

/// Calls a function that `check` has found to be there.
macro_rules! call {
    ($service:expr, $name:ident $(, $argument:expr)*) => {{
        let Some(function) = $service.$name else {
            unreachable!("checked before the replica was started")
        };
        // SAFETY: a function of the type that the header gives it; its state and the arguments outlive the call, as the header asks.
        unsafe { function($service.state $(, $argument)*) }
    }};
}

impl Objects for Words {
    fn pack(&self, object: ObjectId) -> Option<Vec<u8>> {
        let mut bytes = Bytes::default();
        call!(self.0, pack, object.0.into(), &raw mut bytes).then_some(bytes.0)
    }

    fn intact(&self, object: ObjectId) -> bool {
        call!(self.0, intact, object.0.into())
    }

    fn replace(&mut self, object: ObjectId, packed: Option<&[u8]>) {
        // An object of no bytes is still an object: what stands for none is the null pointer.
        let (at, length) = packed.map_or((ptr::null(), 0), |bytes| (bytes.as_ptr(), bytes.len()));
        call!(self.0, replace, object.0.into(), at, length);
    }
}

impl Machine for Words {
    fn begin(&mut self, index: Index) {
        call!(self.0, begin, index.0);
    }

    fn execute(&mut self, time_ms: u64, request: &[u8]) -> Vec<u8> {
        let mut reply = Bytes::default();
        call!(
            self.0,
            execute,
            time_ms,
            request.as_ptr(),
            request.len(),
            &raw mut reply
        );
        reply.0
    }

    fn finish(&mut self) -> Vec<Pair> {
        let mut touched = Named::default();
        call!(self.0, end, &raw mut touched);
        touched.0
    }

    fn objects(&self) -> Vec<ObjectId> {
        let mut all = Named::default();
        call!(self.0, objects, &raw mut all);
        all.0.into_iter().map(|pair| pair.object).collect()
    }

    fn look(&mut self, object: ObjectId) {
        call!(self.0, look, object.0.into());
    }

    fn told(&mut self, news: &News) {
        let text = serde_json::to_string(news).unwrap_or_default();
        if let (Some(function), Ok(text)) = (self.0.told, CString::new(text)) {
            // SAFETY: as for `call`; the text outlives the call.
            unsafe { function(self.0.state, text.as_ptr()) };
        }
    }
}
