//! The session encryption of WKProto (client contract, section 2).
//!
//! Both sides derive an AES-128 key from an X25519 agreement; every payload is AES-128-CBC with the session's salt as
//! IV, in base64, and every SEND and RECV carries a message key over its ciphertext. The scheme is what existing
//! clients speak: it has no authentication of the peers and a fixed IV, so it does not replace TLS.
//!
//! Nothing here draws randomness: the server's secret and salt come from [`Entropy`].

use std::fmt::Write as _;

use aes::Aes128;
use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{Array, BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use md5::{Digest as _, Md5};
use x25519_dalek::{PublicKey, StaticSecret};

use crate::reason::Reason;
use crate::wkproto::{Recv, Send, Setting};

/// The salt of a session, in characters.
pub const SALT_BYTES: usize = 16;
const BLOCK_BYTES: usize = 16;
/// A whole number of cipher blocks and of base64 groups, so that chunks can be encoded one by one.
const CHUNK_BYTES: usize = 48 * 8;
const CHUNK_TEXT_BYTES: usize = CHUNK_BYTES / 3 * 4;
const SALT_ALPHABET: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

type Encryptor = cbc::Encryptor<Aes128>;
type Decryptor = cbc::Decryptor<Aes128>;

/// The random bytes of one server handshake, drawn by the caller from a strong source and used once.
#[derive(Clone)]
pub struct Entropy {
    /// The server's X25519 secret.
    pub secret: [u8; 32],
    /// What the salt is made of, one byte a character.
    pub salt: [u8; SALT_BYTES],
}

/// Why a peer's public key was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum KeyError {
    /// There is no key.
    #[error("the client key is empty")]
    Empty,
    /// The key is not base64 of 32 bytes, or a low-order point that would make the shared secret known.
    #[error("the client key is not a usable X25519 public key")]
    Invalid,
}

impl KeyError {
    /// The reason of the CONNACK: 21 for an empty key, 2 for a bad one.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::Empty => Reason::ClientKeyEmpty,
            Self::Invalid => Reason::AuthFail,
        }
    }
}

/// Why a frame could not be opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OpenError {
    /// The message key does not match the frame.
    #[error("the message key does not match")]
    MessageKey,
    /// The payload is not base64 of a well padded ciphertext.
    #[error("the payload cannot be decrypted")]
    Payload,
}

impl OpenError {
    /// The reason of the SENDACK: 8 or 9.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::MessageKey => Reason::MessageKeyError,
            Self::Payload => Reason::PayloadDecodeError,
        }
    }
}

/// The server's half of a handshake: what CONNACK carries, and the cipher of the session.
#[derive(Clone, Debug)]
pub struct Handshake {
    /// The server's public key, base64.
    pub server_key: String,
    /// The salt, 16 characters.
    pub salt: String,
    /// Opens and seals the session's frames.
    pub cipher: SessionCipher,
}

/// Answers a client's key.
///
/// # Errors
/// [`KeyError`] with the reason for the CONNACK.
pub fn accept(client_key: &str, entropy: &Entropy) -> Result<Handshake, KeyError> {
    let salt = salt_text(&entropy.salt);
    let cipher = SessionCipher::agree(entropy.secret, client_key, &salt)?;
    Ok(Handshake {
        server_key: public_key_text(entropy.secret),
        salt,
        cipher,
    })
}

/// The public key of a secret, as it travels: base64 of 32 bytes.
#[must_use]
pub fn public_key_text(secret: [u8; 32]) -> String {
    BASE64.encode(PublicKey::from(&StaticSecret::from(secret)).as_bytes())
}

fn salt_text(bytes: &[u8; SALT_BYTES]) -> String {
    bytes
        .iter()
        .filter_map(|byte| SALT_ALPHABET.get(usize::from(*byte) % SALT_ALPHABET.len()))
        .map(|character| char::from(*character))
        .collect()
}

/// Key and IV of one session. The key schedule is derived at each use, so that an idle session holds 32 bytes.
#[derive(Clone)]
pub struct SessionCipher {
    key: [u8; BLOCK_BYTES],
    iv: [u8; BLOCK_BYTES],
}

impl std::fmt::Debug for SessionCipher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SessionCipher { .. }")
    }
}

impl SessionCipher {
    /// The cipher that both sides derive from their own secret, the peer's public key text and the salt.
    ///
    /// # Errors
    /// [`KeyError`] if the key is not usable or the salt is shorter than 16 bytes.
    pub fn agree(secret: [u8; 32], peer_key: &str, salt: &str) -> Result<Self, KeyError> {
        if peer_key.is_empty() {
            return Err(KeyError::Empty);
        }
        let mut peer = [0; 32];
        // The estimate of the decoder wants room for a whole last group.
        let mut decoded = [0; 36];
        let length = BASE64
            .decode_slice(peer_key, &mut decoded)
            .map_err(|_| KeyError::Invalid)?;
        peer.copy_from_slice(
            decoded
                .get(..length)
                .filter(|key| key.len() == 32)
                .ok_or(KeyError::Invalid)?,
        );
        let shared = StaticSecret::from(secret).diffie_hellman(&PublicKey::from(peer));
        if !shared.was_contributory() {
            return Err(KeyError::Invalid);
        }
        let digest = Md5::digest(BASE64.encode(shared.as_bytes()));
        let key_text = hex(&digest.into());
        let key = *key_text.first_chunk().ok_or(KeyError::Invalid)?;
        let iv = *salt.as_bytes().first_chunk().ok_or(KeyError::Invalid)?;
        Ok(Self { key, iv })
    }

    /// The plain payload of a SEND: checks the message key, then decrypts. With the NoEncrypt bit the payload is taken
    /// as it stands and no key is checked.
    ///
    /// # Errors
    /// [`OpenError`] with the reason for the SENDACK.
    pub fn open_send(&self, send: &Send) -> Result<Bytes, OpenError> {
        if send.setting.contains(Setting::NO_ENCRYPT) {
            return Ok(send.payload.clone());
        }
        let expected = self.send_key(send);
        if !same(&expected, send.msg_key.as_bytes()) {
            return Err(OpenError::MessageKey);
        }
        self.decrypt(&send.payload)
    }

    /// Encrypts the plain payload of a RECV and sets its message key. A RECV with the NoEncrypt bit stays as it is.
    pub fn seal_recv(&self, recv: &mut Recv) {
        if recv.setting.contains(Setting::NO_ENCRYPT) {
            return;
        }
        recv.payload = self.encrypt(&recv.payload);
        recv.msg_key = key_string(&self.recv_key(recv));
    }

    /// The client's side of [`SessionCipher::open_send`].
    pub fn seal_send(&self, send: &mut Send) {
        if send.setting.contains(Setting::NO_ENCRYPT) {
            return;
        }
        send.payload = self.encrypt(&send.payload);
        send.msg_key = self.send_message_key(send);
    }

    /// The client's side of [`SessionCipher::seal_recv`].
    ///
    /// # Errors
    /// [`OpenError`]: a client ignores such a frame.
    pub fn open_recv(&self, recv: &Recv) -> Result<Bytes, OpenError> {
        if recv.setting.contains(Setting::NO_ENCRYPT) {
            return Ok(recv.payload.clone());
        }
        let expected = self.recv_key(recv);
        if !same(&expected, recv.msg_key.as_bytes()) {
            return Err(OpenError::MessageKey);
        }
        self.decrypt(&recv.payload)
    }

    /// The message key of a SEND over its payload as it stands, whatever that is.
    #[must_use]
    pub fn send_message_key(&self, send: &Send) -> String {
        key_string(&self.send_key(send))
    }

    fn send_key(&self, send: &Send) -> [u8; 32] {
        let mut hasher = KeyHasher::new(self.encryptor());
        hasher.number(send.client_seq);
        hasher.update(send.client_msg_no.as_bytes());
        hasher.update(send.channel_id.as_bytes());
        hasher.number(send.channel_type);
        hasher.update(&send.payload);
        hasher.finish()
    }

    fn recv_key(&self, recv: &Recv) -> [u8; 32] {
        let mut hasher = KeyHasher::new(self.encryptor());
        hasher.number(recv.message_id);
        hasher.number(recv.message_seq);
        hasher.update(recv.client_msg_no.as_bytes());
        hasher.number(recv.timestamp_s);
        hasher.update(recv.from_uid.as_bytes());
        hasher.update(recv.channel_id.as_bytes());
        hasher.number(recv.channel_type);
        hasher.update(&recv.payload);
        hasher.finish()
    }

    fn encryptor(&self) -> Encryptor {
        Encryptor::new(&self.key.into(), &self.iv.into())
    }

    /// Base64 text of the ciphertext; the result is the only allocation.
    fn encrypt(&self, plain: &[u8]) -> Bytes {
        let padded = (plain.len() / BLOCK_BYTES + 1) * BLOCK_BYTES;
        let mut out = Vec::with_capacity(padded.div_ceil(3) * 4);
        let mut stream = CipherText::new(self.encryptor());
        stream.update(plain, |text| out.extend_from_slice(text));
        stream.finish(|text| out.extend_from_slice(text));
        Bytes::from(out)
    }

    fn decrypt(&self, wire: &[u8]) -> Result<Bytes, OpenError> {
        let mut buffer = BASE64.decode(wire).map_err(|_| OpenError::Payload)?;
        let length = Decryptor::new(&self.key.into(), &self.iv.into())
            .decrypt_padded::<Pkcs7>(&mut buffer)
            .map_err(|_| OpenError::Payload)?
            .len();
        buffer.truncate(length);
        Ok(Bytes::from(buffer))
    }
}

/// Encrypts a stream of pieces and hands out the base64 text of the ciphertext, in chunks on the stack.
struct CipherText {
    encryptor: Encryptor,
    chunk: [u8; CHUNK_BYTES],
    used: usize,
}

impl CipherText {
    fn new(encryptor: Encryptor) -> Self {
        Self {
            encryptor,
            chunk: [0; CHUNK_BYTES],
            used: 0,
        }
    }

    fn update(&mut self, mut piece: &[u8], mut text: impl FnMut(&[u8])) {
        while !piece.is_empty() {
            let room = self.chunk.get_mut(self.used..).unwrap_or_default();
            let taken = room.len().min(piece.len());
            let (head, tail) = piece.split_at(taken);
            if let Some(target) = room.get_mut(..taken) {
                target.copy_from_slice(head);
            }
            self.used += taken;
            piece = tail;
            if self.used == CHUNK_BYTES {
                self.flush(&mut text);
            }
        }
    }

    /// Pads by PKCS#7 and hands out the rest. A full chunk never waits here, so the padding always fits.
    fn finish(mut self, mut text: impl FnMut(&[u8])) {
        let padding = BLOCK_BYTES - self.used % BLOCK_BYTES;
        if let (Some(target), Ok(byte)) = (
            self.chunk.get_mut(self.used..self.used + padding),
            u8::try_from(padding),
        ) {
            target.fill(byte);
        }
        self.used += padding;
        self.flush(&mut text);
    }

    fn flush(&mut self, text: &mut impl FnMut(&[u8])) {
        let filled = self.chunk.get_mut(..self.used).unwrap_or_default();
        let (blocks, _) = Array::slice_as_chunks_mut(filled);
        self.encryptor.encrypt_blocks(blocks);
        let mut encoded = [0; CHUNK_TEXT_BYTES];
        let length = BASE64.encode_slice(&*filled, &mut encoded).unwrap_or_default();
        text(encoded.get(..length).unwrap_or_default());
        self.used = 0;
    }
}

/// The message key of a concatenation: MD5 in lowercase hex of the base64 of its ciphertext, without holding either.
struct KeyHasher {
    stream: CipherText,
    digest: Md5,
}

impl KeyHasher {
    fn new(encryptor: Encryptor) -> Self {
        Self {
            stream: CipherText::new(encryptor),
            digest: Md5::new(),
        }
    }

    fn update(&mut self, piece: &[u8]) {
        let digest = &mut self.digest;
        self.stream.update(piece, |text| digest.update(text));
    }

    fn number(&mut self, number: impl std::fmt::Display) {
        let mut decimal = Decimal {
            text: [0; 20],
            length: 0,
        };
        // A 64-bit number has at most 20 characters, so this cannot fail.
        let _ = write!(decimal, "{number}");
        self.update(decimal.text.get(..decimal.length).unwrap_or_default());
    }

    fn finish(mut self) -> [u8; 32] {
        let digest = &mut self.digest;
        self.stream.finish(|text| digest.update(text));
        hex(&self.digest.finalize().into())
    }
}

struct Decimal {
    text: [u8; 20],
    length: usize,
}

impl std::fmt::Write for Decimal {
    fn write_str(&mut self, piece: &str) -> std::fmt::Result {
        let end = self.length + piece.len();
        self.text
            .get_mut(self.length..end)
            .ok_or(std::fmt::Error)?
            .copy_from_slice(piece.as_bytes());
        self.length = end;
        Ok(())
    }
}

fn hex(bytes: &[u8; 16]) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0; 32];
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        if let ([high, low], Some(first), Some(second)) = (
            pair,
            DIGITS.get(usize::from(byte >> 4)),
            DIGITS.get(usize::from(byte & 0x0f)),
        ) {
            *high = *first;
            *low = *second;
        }
    }
    text
}

fn key_string(key: &[u8; 32]) -> String {
    key.iter().map(|byte| char::from(*byte)).collect()
}

/// Compares without an early exit, so that the time does not tell how much of a key was right.
fn same(expected: &[u8; 32], given: &[u8]) -> bool {
    given.len() == expected.len()
        && expected
            .iter()
            .zip(given)
            .fold(0, |difference, (left, right)| difference | (left ^ right))
            == 0
}

#[cfg(test)]
mod tests;
