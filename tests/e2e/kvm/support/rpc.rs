//! libvirt's RPC framing (`virnetprotocol.x`) and the numbers of its calls (`remote_protocol.x`), as far as the
//! operator makes them.

use std::io::{self, Read};

/// The program of libvirt's own calls; the others (keepalive, the QEMU driver's) have numbers of their own.
const REMOTE_PROGRAM: u32 = 0x2000_8086;
const KEEPALIVE_PROGRAM: u32 = 0x6b65_6570;

/// The most bytes of a message (`VIR_NET_MESSAGE_MAX`, 32 MiB), with room for the next to grow.
const MESSAGE_MAX: u32 = 64 << 20;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Call,
    Reply,
    /// A piece of a stream, or its end.
    Stream,
    /// What neither asks nor answers: events, keepalive.
    Other,
}

/// Whether a call leaves something changed on the hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Looks,
    Changes(&'static str),
    /// The tests do not know it, hence do not know whether it changes anything.
    Unknown(u32, u32),
}

/// A message with its head read.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) bytes: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) program: u32,
    pub(crate) procedure: u32,
    pub(crate) serial: u32,
    /// `VIR_NET_CONTINUE`: more of the stream follows.
    pub(crate) continues: bool,
}

const LENGTH_BYTES: usize = 4;
const HEAD_BYTES: usize = LENGTH_BYTES + 6 * 4;

impl Message {
    /// Reads the next one; `None` at the end of the connection.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut length = [0; LENGTH_BYTES];
        match from.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let whole = u32::from_be_bytes(length);
        if !(HEAD_BYTES as u32..=MESSAGE_MAX).contains(&whole) {
            return Err(io::Error::other(format!("a message of {whole} bytes is none of libvirt's")));
        }
        let mut bytes = vec![0; whole as usize];
        bytes[..LENGTH_BYTES].copy_from_slice(&length);
        from.read_exact(&mut bytes[LENGTH_BYTES..])?;
        let word = |index: usize| {
            let at = LENGTH_BYTES + 4 * index;
            u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
        };
        let kind = match word(3) {
            0 | 4 => Kind::Call,
            1 | 5 => Kind::Reply,
            3 => Kind::Stream,
            _ => Kind::Other,
        };
        let (program, procedure, serial, continues) = (word(0), word(2), word(4), word(5) == 2);
        Ok(Some(Self { kind, program, procedure, serial, continues, bytes }))
    }

    /// Whether it carries nothing beside its head, as the end of a stream does.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.len() == HEAD_BYTES
    }

    pub(crate) fn effect(&self) -> Effect {
        match self.program {
            KEEPALIVE_PROGRAM => Effect::Looks,
            REMOTE_PROGRAM => effect(self.procedure),
            other => Effect::Unknown(other, self.procedure),
        }
    }
}

fn effect(procedure: u32) -> Effect {
    match procedure {
        // Connection: open, close, type, version, the library's version, capabilities, features, authentication.
        1 | 2 | 3 | 4 | 157 | 7 | 60 | 66 => Effect::Looks,
        // Node: info, memory statistics. Capabilities of domains.
        6 | 228 | 342 => Effect::Looks,
        // Registering for events, and the end of it, keeps nothing on the hypervisor.
        105 | 106 | 167 | 168 | 316 | 317 | 360 | 361 => Effect::Looks,
        // Domains: XML, autostart, info, look-up by name and by uuid, state, metadata, all, statistics of all, addresses.
        14 | 15 | 16 | 23 | 24 | 212 | 265 | 273 | 344 | 353 => Effect::Looks,
        // How long the guest's agent is waited for is forgotten with the domain's process.
        420 => Effect::Looks,
        // Networks: look-up by name and by uuid, whether one is active, all, leases.
        46 | 47 | 152 | 283 | 341 => Effect::Looks,
        // Pools: look-up by name and by uuid, info, XML, whether one is active, all, their volumes.
        84 | 85 | 87 | 88 | 154 | 281 | 282 => Effect::Looks,
        // Volumes: look-up by name, key and path, info, XML, path, info with flags; download.
        95 | 96 | 97 | 98 | 99 | 100 | 378 | 209 => Effect::Looks,
        9 => Effect::Changes("DomainCreate"),
        11 => Effect::Changes("DomainDefineXML"),
        12 => Effect::Changes("DomainDestroy"),
        29 => Effect::Changes("DomainSetAutostart"),
        83 => Effect::Changes("StoragePoolRefresh"),
        93 => Effect::Changes("StorageVolCreateXML"),
        94 => Effect::Changes("StorageVolDelete"),
        196 => Effect::Changes("DomainCreateWithFlags"),
        UPLOAD => Effect::Changes("StorageVolUpload"),
        231 => Effect::Changes("DomainUndefineFlags"),
        234 => Effect::Changes("DomainDestroyFlags"),
        350 => Effect::Changes("DomainDefineXMLFlags"),
        other => Effect::Unknown(REMOTE_PROGRAM, other),
    }
}

/// `REMOTE_PROC_STORAGE_VOL_UPLOAD`, after which the bytes of the volume follow as a stream.
pub(crate) const UPLOAD: u32 = 208;
