//! Draws calls and their arguments.

use crate::model::{Function, Samples};
use crate::shape::Shape;
use crate::value::Value;

/// SplitMix64: the same calls for the same seed.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        Self(seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`, which is not 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n.max(1) as u64).unwrap_or(0)
    }

    pub(super) fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        if of.is_empty() {
            return None;
        }
        let place = self.below(of.len());
        of.get(place).cloned()
    }

    /// One in so many.
    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Mostly small, so that calls meet each other.
    fn number(&mut self, most: u64) -> u64 {
        let n = match self.below(8) {
            0..=4 => self.next() % 4,
            5 => self.next() % 16,
            6 => self.next() % 4096,
            _ => self.next(),
        };
        if most == u64::MAX { n } else { n % (most + 1) }
    }

    fn signed(&mut self) -> i8 {
        self.number(u64::MAX).to_le_bytes()[0].cast_signed()
    }

    /// An argument within its bounds. None of a type that holds an object.
    pub(super) fn argument(
        &mut self,
        function: &Function,
        place: usize,
        samples: &Samples,
    ) -> Option<Value> {
        let param = &function.params[place];
        let max = function.argument_max.iter().find(|(of, _)| *of == place);
        let value = self.value(&param.name, &param.shape, samples)?;
        match max {
            Some((_, max)) if value.number().is_some_and(|n| n > *max) => {
                let n = self.number(*max);
                param.shape.of_number(n)
            }
            _ => Some(value),
        }
    }

    fn value(&mut self, name: &str, shape: &Shape, samples: &Samples) -> Option<Value> {
        let told = samples.get(name, shape);
        if !told.is_empty() && !self.one_in(16) {
            return self.pick(&told);
        }
        let byte = |n: u64| n.to_le_bytes()[0];
        Some(match shape {
            Shape::Bool => Value::Bool(self.one_in(2)),
            Shape::U8 | Shape::U16 | Shape::U32 | Shape::U64 => {
                let most = match shape {
                    Shape::U8 => u8::MAX.into(),
                    Shape::U16 => u16::MAX.into(),
                    Shape::U32 => u32::MAX.into(),
                    _ => u64::MAX,
                };
                let n = self.number(most);
                shape.of_number(n)?
            }
            Shape::S8 => Value::S8(self.signed()),
            Shape::S16 => Value::S16(self.signed().into()),
            Shape::S32 => Value::S32(self.signed().into()),
            Shape::S64 => Value::S64(self.signed().into()),
            Shape::F32 => Value::F32(f32::from(self.signed()).to_bits()),
            Shape::F64 => Value::F64(f64::from(self.signed()).to_bits()),
            Shape::Char => Value::Char(self.pick(&['a', 'b', '/', 'ä'])?),
            Shape::String => {
                let text = self.pick(&["a", "b", "c", "a/b", "", "äö"])?;
                Value::String(text.into())
            }
            Shape::List(_) if shape.is_bytes() => {
                let length = self.below(12);
                Value::Bytes((0..length).map(|_| byte(self.next())).collect())
            }
            Shape::List(inner) => {
                let length = self.below(4);
                let items = (0..length).map(|_| self.value("", inner, samples));
                Value::List(items.collect::<Option<_>>()?)
            }
            Shape::Record(fields) => {
                let fields = fields.iter().map(|(name, shape)| {
                    let value = self.value(name, shape, samples)?;
                    Some((name.clone(), value))
                });
                Value::Record(fields.collect::<Option<_>>()?)
            }
            Shape::Tuple(shapes) => {
                let items = shapes.iter().map(|shape| self.value("", shape, samples));
                Value::Tuple(items.collect::<Option<_>>()?)
            }
            Shape::Variant(cases) => {
                let (name, shape) = self.pick(cases)?;
                let inner = self.maybe(&name, shape.as_deref(), samples)?;
                Value::Variant(name, inner)
            }
            Shape::Enum(cases) => Value::Enum(self.pick(cases)?),
            Shape::Option(_) if self.one_in(3) => Value::Option(None),
            Shape::Option(inner) => Value::Option(Some(Box::new(self.value("", inner, samples)?))),
            Shape::Result(ok, err) => Value::Result(if self.one_in(4) {
                Err(self.maybe("", err.as_deref(), samples)?)
            } else {
                Ok(self.maybe("", ok.as_deref(), samples)?)
            }),
            Shape::Flags(names) => {
                let given = names.iter().filter(|_| self.one_in(2));
                Value::Flags(given.cloned().collect())
            }
            Shape::Handle(_) => return None,
        })
    }

    #[expect(clippy::option_option, reason = "none: no such value can be drawn")]
    fn maybe(
        &mut self,
        name: &str,
        shape: Option<&Shape>,
        samples: &Samples,
    ) -> Option<Option<Box<Value>>> {
        match shape {
            None => Some(None),
            Some(shape) => Some(Some(Box::new(self.value(name, shape, samples)?))),
        }
    }
}
