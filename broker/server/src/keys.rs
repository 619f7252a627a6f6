//! API keys and random ids: everything that needs the system's randomness at the start.

use sha2::{Digest, Sha256};

/// A new API key of 256 bits and the hex SHA-256 of it.
///
/// # Errors
/// When the system gives no random bytes.
pub fn new_api_key() -> Result<(String, String), getrandom::Error> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes)?;
    let key = format!("pk_{}", hex(&bytes));
    let digest = hex(&Sha256::digest(key.as_bytes()));
    Ok((key, digest))
}

/// A new secret for webhooks, of 256 bits.
///
/// # Errors
/// When the system gives no random bytes.
pub fn new_webhook_secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes)?;
    Ok(penstock_egress::Secret::text_of(&bytes))
}

/// A random number that is not 0.
///
/// # Errors
/// When the system gives no random bytes.
pub fn random_id() -> Result<u64, getrandom::Error> {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
