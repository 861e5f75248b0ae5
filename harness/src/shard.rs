//! A part of a run, for machines that share the work.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use xxhash_rust::xxh3::xxh3_64;

/// The `K`th of `N` parts, written `K/N`. What a part holds depends on names alone, so that further cases move none from
/// one part to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    number: u32,
    count: NonZeroU32,
}

impl Shard {
    /// Whether what has this name belongs to this part. Each name belongs to exactly one.
    pub fn holds(self, name: &str) -> bool {
        let count = u64::from(self.count.get());
        xxh3_64(name.as_bytes()) % count == u64::from(self.number - 1)
    }

    /// Which part, from 1.
    pub fn number(self) -> u32 {
        self.number
    }

    /// How many parts there are.
    pub fn count(self) -> u32 {
        self.count.get()
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.count)
    }
}

/// The text is no part of a whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected `K/N` with K from 1 to N, such as `1/4`")]
pub struct NotAShard;

impl FromStr for Shard {
    type Err = NotAShard;

    fn from_str(text: &str) -> Result<Shard, NotAShard> {
        let (number, count) = text.split_once('/').ok_or(NotAShard)?;
        let (number, count) = (read(number)?, read(count)?);
        let count = NonZeroU32::new(count).ok_or(NotAShard)?;
        if (1..=count.get()).contains(&number) { Ok(Shard { number, count }) } else { Err(NotAShard) }
    }
}

/// A number in digits alone: one part has one spelling, by which reports are compared.
fn read(digits: &str) -> Result<u32, NotAShard> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| is_plain).ok_or(NotAShard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_in_exactly_one_part_of_any_number_of_parts() {
        for count in [1, 2, 7, 64] {
            let shards: Vec<Shard> =
                (1..=count).map(|number| format!("{number}/{count}").parse().expect("a shard")).collect();
            for name in 0..500 {
                let name = format!("faults/append/{name}");
                assert_eq!(shards.iter().filter(|shard| shard.holds(&name)).count(), 1);
            }
        }
    }

    #[test]
    fn only_one_of_some_parts_is_a_part() {
        assert_eq!("3/7".parse::<Shard>().map(|shard| shard.to_string()), Ok("3/7".to_owned()));
        for text in ["0/7", "8/7", "1/0", "7", "/", "+1/7", "01/7", "1/7/", "-1/7", "a/b", "1/99999999999"] {
            assert_eq!(text.parse::<Shard>(), Err(NotAShard), "{text}");
        }
    }
}
