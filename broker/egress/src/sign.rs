//! Signatures after Standard Webhooks (<https://www.standardwebhooks.com>), version 1 with shared secrets.

use crate::secret::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// The value of `webhook-signature`: one signature for each secret, so that receivers with an old or a new one can verify it.
pub(crate) fn signature(secrets: &[Secret], id: &str, timestamp_s: u64, body: &[u8]) -> String {
    let signed: Vec<String> = secrets
        .iter()
        .map(|secret| {
            let mut context = hmac::Context::with_key(secret.key());
            context.update(format!("{id}.{timestamp_s}.").as_bytes());
            context.update(body);
            format!("v1,{}", STANDARD.encode(context.sign()))
        })
        .collect();
    signed.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector of the specification.
    #[test]
    fn the_published_vector() {
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let body = br#"{"test": 2432232314}"#;
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(
            signature(std::slice::from_ref(&secret), id, 1_614_265_330, body),
            expected
        );
        let other = Secret::parse(&Secret::text_of(&[9; 32])).expect("a secret");
        let both = signature(&[other, secret], id, 1_614_265_330, body);
        assert!(
            both.ends_with(&format!(" {expected}")) && both.matches("v1,").count() == 2,
            "{both}"
        );
    }
}
