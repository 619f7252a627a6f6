//! Plugins of a simulated cluster: scripts by the number of their component, which answer, refuse, stall, trap or never answer, and
//! what somebody who deploys them wants next.

mod deploy;
mod echo;
mod gatekeeper;
mod notifier;

pub use deploy::{Deployer, changed_by};
pub use echo::{ECHO, Echo, depth, is_answer};
pub use gatekeeper::{BANNED, Gatekeeper};
pub use notifier::{Notifier, absent};

use crate::invariants::m_19::{marked, number};
use crate::oracle;
use crate::rng::{Rng, Stream};
use penstock_core::hooks::call::{Failed, Version};
use penstock_core::hooks::pipeline::{Rewrite, Verdict};
use penstock_core::message::{Draft, Message, Refusal};
use penstock_core::types::Reason;
use std::sync::Arc;
use std::time::Duration;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is answered after this time.
    Answer(Duration),
    /// It traps after this time.
    Trap(Duration),
    /// It is stopped for its deadline, and the host says so after this time.
    Stall(Duration),
    /// The host has lost it.
    Lost,
}

/// The code of one component.
#[derive(Clone, Copy, Debug)]
struct Script {
    trap_permille: u32,
    /// Traps always during every second stretch of so much time; zero never does.
    spells: Duration,
    stall_permille: u32,
    /// Refuses the operations of one remainder by this; 0 refuses none.
    refuses: usize,
    /// Cannot do the messages of the operations of one remainder by this, after the commit; 0 does all.
    poisons: usize,
    /// Leaves the operations of one remainder by this as they are; 0 changes all.
    leaves: usize,
}

impl Script {
    fn is_in_spell(&self, now: Duration) -> bool {
        let number = now.as_millis().checked_div(self.spells.as_millis());
        number.is_some_and(|number| number % 2 == 0)
    }
}

/// The plugin host of all nodes.
#[derive(Debug)]
pub struct Plugins {
    seed: u64,
    rng: Rng,
    latency: Duration,
    /// No failures and no refusals any more: the cluster is to converge.
    pub calm: bool,
    /// Who changes the registry; nobody in most runs.
    pub deployer: Option<Deployer>,
    /// Who binds gates and speaks for them, beside a deployer.
    pub gatekeeper: Option<Gatekeeper>,
    /// Who binds a plugin to offline recipients, beside a deployer.
    pub notifier: Option<Notifier>,
    /// Who binds a plugin that publishes and speaks for it, beside a deployer.
    pub echo: Option<Echo>,
}

impl Plugins {
    /// The plugins of a seed: in one of three runs there are any.
    #[must_use]
    pub fn new(seed: u64) -> Plugins {
        let mut rng = Rng::new(seed, Stream::Plugins);
        let milliseconds = Duration::from_millis;
        let latency = rng.pick(&[milliseconds(1), milliseconds(5), milliseconds(40)]);
        let deployer = (rng.index(3) == 0).then(|| Deployer::new(&mut rng));
        Plugins {
            seed,
            rng,
            latency,
            calm: false,
            gatekeeper: Gatekeeper::new(seed).filter(|_| deployer.is_some()),
            notifier: Notifier::new(seed).filter(|_| deployer.is_some()),
            echo: Echo::new(seed).filter(|_| deployer.is_some()),
            deployer,
        }
    }

    fn script(&self, version: &Version) -> Script {
        let rng = &mut Rng::salted(self.seed, 1_000 + u64::from(number(version)));
        Script {
            trap_permille: rng.pick(&[0, 20, 200]),
            stall_permille: rng.pick(&[0, 20, 100]),
            refuses: rng.pick(&[0, 0, 11, 29]),
            leaves: rng.pick(&[0, 3]),
            poisons: rng.pick(&[0, 0, 17]),
            spells: Duration::from_secs(rng.pick(&[0, 0, 0, 4, 1_000])),
        }
    }

    /// What becomes of a call that may take so long.
    pub fn fate(&mut self, now: Duration, version: &Version, within: Duration) -> Fate {
        let script = self.script(version);
        let after = self.rng.tailed(self.latency);
        let (trap, stall) = (
            self.rng.permille(script.trap_permille),
            self.rng.permille(script.stall_permille),
        );
        if self.calm {
            // What takes longer than it may is stopped; in peace nothing does.
            Fate::Answer(after.min(within / 4))
        } else if after >= within || stall {
            let late = self.rng.time(Duration::ZERO, Duration::from_millis(1_500));
            if self.rng.permille(100) {
                Fate::Lost
            } else {
                Fate::Stall(within + late)
            }
        } else if trap || script.is_in_spell(now) {
            Fate::Trap(after)
        } else {
            Fate::Answer(after)
        }
    }

    /// How many of these committed messages the code has done, or what it wants.
    pub fn done(&mut self, version: &Version, messages: &[Message]) -> Result<usize, Failed> {
        if self.calm {
            return Ok(messages.len());
        }
        let (script, salt) = (self.script(version), number(version) as usize);
        let poison = |message: &Message| {
            let operation = oracle::index(&message.draft.client_msg_no).unwrap_or(0);
            script.poisons > 0 && (operation + salt).is_multiple_of(script.poisons)
        };
        let good = messages.iter().position(poison).unwrap_or(messages.len());
        if good == 0 {
            return Err(Failed::Poison);
        }
        match self.rng.below(10) {
            0 => Ok(self.rng.index(good + 1)),
            1 => Err(Failed::Retry {
                after: self.rng.pick(&[
                    None,
                    Some(Duration::from_millis(30)),
                    Some(Duration::from_secs(2)),
                ]),
            }),
            _ => Ok(good),
        }
    }

    /// How many of so many offline recipients of a message the code has done, or what it wants.
    pub fn noted(&mut self, version: &Version, message: &Message, uids: usize) -> Result<usize, Failed> {
        self.done(version, std::slice::from_ref(message))?;
        let Some(notifier) = self.notifier.as_mut().filter(|_| !self.calm) else {
            return Ok(uids);
        };
        Ok(if notifier.index(4) == 0 {
            notifier.index(uids + 1)
        } else {
            uids
        })
    }

    /// What becomes of a delivery of committed messages: the endpoint takes it, fails, wants a pause, is left alone or gone, or the
    /// code wants something of its own.
    pub fn delivered(&mut self, version: &Version, messages: &[Message]) -> Result<(), Failed> {
        let pauses = [
            None,
            Some(Duration::from_millis(200)),
            Some(Duration::from_secs(60)),
        ];
        match self.done(version, messages)? {
            count if count < messages.len() => Err(Failed::Undelivered {
                after: self.rng.pick(&pauses),
            }),
            _ if self.calm => Ok(()),
            _ => match self.rng.below(40) {
                0 => Err(Failed::Gone),
                1..=4 => Err(Failed::Later {
                    after: self
                        .rng
                        .pick(&[Duration::from_millis(100), Duration::from_secs(3)]),
                }),
                _ => Ok(()),
            },
        }
    }

    /// What becomes of a delivery of users that came or went: the endpoint takes it, fails, wants a pause, is left alone or gone.
    ///
    /// # Errors
    /// When it is not taken.
    pub fn status_delivered(&mut self) -> Result<(), Failed> {
        if self.calm {
            return Ok(());
        }
        match self.rng.below(20) {
            0..=2 => Err(Failed::Undelivered {
                after: self.rng.pick(&[None, Some(Duration::from_secs(2))]),
            }),
            3 => Err(Failed::Later {
                after: Duration::from_millis(300),
            }),
            4 => self
                .rng
                .permille(200)
                .then_some(())
                .map_or(Ok(()), |()| Err(Failed::Gone)),
            _ => Ok(()),
        }
    }

    /// What the code says of a draft.
    #[must_use]
    pub fn verdict(&self, version: &Version, draft: &Draft) -> Verdict {
        let script = self.script(version);
        let operation = oracle::index(&draft.client_msg_no).unwrap_or(0);
        let salted = operation + number(version) as usize;
        if script.refuses > 0 && salted.is_multiple_of(script.refuses) && !self.calm {
            return Verdict::Reject(Refusal {
                reason: Reason::NOT_ALLOWED,
                text: Some(Arc::from("no")),
            });
        }
        if script.leaves > 0 && salted.is_multiple_of(script.leaves) {
            return Verdict::Allow;
        }
        Verdict::Rewrite(Rewrite {
            payload: marked(&draft.payload, version),
            expire_s: draft.expire_s,
            topic: Arc::clone(&draft.topic),
        })
    }
}
