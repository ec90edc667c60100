//! A software device: what all its queues share, whatever carries their messages.

use std::fmt::Display;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rpcrdma_config::Config;
use rpcrdma_config::section::ProviderKind;
use rpcrdma_provider::{DeviceCaps, QueueAttr, SetupError};

use crate::Transport;
use crate::body::{INLINE_LEN, PIECES_MAX};
use crate::keys::KeyTable;
use crate::limits;
use crate::port::Port;
use crate::queues::SoftQueues;
use crate::rights::Rights;
use crate::settings::Settings;

/// A software device. Control plane only.
pub struct Device {
    caps: DeviceCaps,
    settings: Settings,
    keys: Arc<KeyTable>,
    windows_left: Arc<AtomicU32>,
    /// The secret that scrambles remote keys.
    key_secret: u64,
    /// The next number of queues or of a link.
    number: AtomicU64,
}

/// What a program opened, for errors of its configuration.
pub struct Opened {
    /// The configured provider that it is.
    pub kind: ProviderKind,
    /// The device, as in "the program opened the software fabric".
    pub device: &'static str,
    /// Begins the statement of an option, as in "the fabric was made with 64".
    pub made_with: &'static str,
    /// What makes one that is as configured.
    pub from_config: &'static str,
}

impl Device {
    /// A device whose queues have these settings. The same seed gives the same remote keys; without
    /// one they are unpredictable.
    pub fn new(name: &str, settings: Settings, key_seed: Option<u64>) -> Device {
        let caps = DeviceCaps {
            name: name.to_owned(),
            send_sge: PIECES_MAX as u32,
            read_sge: PIECES_MAX as u32,
            recv_sge: 32,
            srq_depth: 1 << 20,
            cq_depth: 1 << 22,
            send_depth: 1 << 14,
            inline_len: INLINE_LEN as u32,
            message_len: settings.message_len,
            windows: settings.windows,
            rd_atomic: settings.reads_max,
            reads_expose: false,
        };
        Device {
            windows_left: Arc::new(AtomicU32::new(settings.windows)),
            key_secret: key_seed.unwrap_or_else(|| RandomState::new().hash_one(0)),
            number: AtomicU64::new(1),
            keys: Arc::default(),
            caps,
            settings,
        }
    }

    /// What it can do.
    pub fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    /// Its registrations.
    pub fn keys(&self) -> &Arc<KeyTable> {
        &self.keys
    }

    /// Memory windows that are open.
    pub fn windows(&self) -> usize {
        (self.caps.windows - self.windows_left.load(Ordering::Relaxed)) as usize
    }

    /// A number that no queues and no link of the device have had.
    pub fn number(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    /// Opens queues, whose port is made of their number.
    ///
    /// # Errors
    /// [`SetupError::Limit`] if the device cannot have queues of this size, and those of `port`.
    pub fn open_queues<P: Port>(
        &self,
        attr: &QueueAttr,
        port: impl FnOnce(u64) -> Result<Arc<P>, SetupError>,
    ) -> Result<SoftQueues<P>, SetupError> {
        limits::check(attr, &self.caps)?;
        let number = self.number();
        let port = port(number)?;
        let secret = self.key_secret.wrapping_add(number);
        let rights = Rights::new(secret, Arc::clone(&self.windows_left));
        let keys = Arc::clone(&self.keys);
        let transport = Transport::new(attr, keys, rights, self.settings.clone());
        Ok(SoftQueues::new(port, transport))
    }
}

impl Opened {
    /// Whether it is what the configuration names: the provider, and the options by their keys, as
    /// the device was made and as they are configured.
    ///
    /// # Errors
    /// [`SetupError::Unmet`] with the first key that differs.
    pub fn check(
        &self,
        config: &Config,
        options: &[(&'static str, &dyn Display, &dyn Display)],
    ) -> Result<(), SetupError> {
        if !config.engine().provider.admits(self.kind) {
            let reason =
                format!("the program opened {}; open the configured provider", self.device);
            return Err(SetupError::unmet(config, "engine.provider", reason));
        }
        for (key, made, configured) in options {
            let made = made.to_string();
            if made != configured.to_string() {
                let Opened { made_with, from_config, .. } = self;
                let reason =
                    format!("{made_with} {made}; {from_config} makes one that is as configured");
                return Err(SetupError::unmet(config, key, reason));
            }
        }
        Ok(())
    }
}
