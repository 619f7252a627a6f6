//! Check 7: metadata is linearizable per key. One writer per register writes 1, 2, 3, … one after another; then a
//! history is linearizable exactly when every read returns something between the last write that had returned when
//! the read was called and the last write that had been called when the read returned, and no read returns less than
//! a read that had returned before it was called.

/// A read on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    register: usize,
    floor: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Register {
    called: u64,
    returned: u64,
    read: u64,
}

/// The registers of a run.
#[derive(Debug, Default)]
pub struct Registers {
    registers: Vec<Register>,
}

impl Registers {
    /// Adds a register that holds 0, and returns its index.
    pub fn add(&mut self) -> usize {
        self.registers.push(Register::default());
        self.registers.len() - 1
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.registers.len()
    }

    /// The writer calls its next write, or the same again while it has no answer; returns the value.
    pub fn write(&mut self, register: usize) -> u64 {
        let register = &mut self.registers[register];
        if register.called == register.returned {
            register.called += 1;
        }
        register.called
    }

    /// The write of this value returned.
    pub fn written(&mut self, register: usize, value: u64) {
        let register = &mut self.registers[register];
        register.returned = register.returned.max(value);
    }

    /// A read is called.
    #[must_use]
    pub fn read(&self, register: usize) -> Reading {
        let state = self.registers[register];
        Reading {
            register,
            floor: state.returned.max(state.read),
        }
    }

    /// A read returned `value`.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn check(&mut self, reading: Reading, value: u64) -> Result<(), String> {
        let state = &mut self.registers[reading.register];
        let range = reading.floor..=state.called;
        state.read = state.read.max(value);
        if range.contains(&value) {
            Ok(())
        } else {
            Err(format!(
                "register {} read as {value}, which must be in {range:?}",
                reading.register
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_may_return_what_is_being_written_and_never_less_than_was_read() {
        let mut registers = Registers::default();
        let register = registers.add();
        assert_eq!(registers.write(register), 1);
        let early = registers.read(register);
        assert_eq!(registers.write(register), 1, "a retry writes the same");
        assert_eq!(registers.check(registers.read(register), 1), Ok(()));
        assert_eq!(
            registers.check(early, 0),
            Ok(()),
            "it was called before the write returned"
        );
        assert!(registers.check(registers.read(register), 0).is_err());
        registers.written(register, 1);
        assert_eq!(registers.write(register), 2);
        assert!(registers.check(registers.read(register), 3).is_err());
    }
}
