//! What a Proxy's machine is made from: its spec, its credentials, its documents.

use std::sync::Arc;

use proxy_operator_api::Proxy;
use proxy_operator_api::validate::{self, CLOUD_INIT_MAX_BYTES};
use proxy_operator_core::error::{Error, ErrorCode, Result};
use proxy_operator_core::provider::{Access, Author, CloudInit, Credential, InstanceSpec, Software};
use proxy_operator_core::sensitive::Sensitive;
use proxy_operator_core::squid;
use rand::RngExt as _;
use sha_crypt::{CustomizedPasswordHasher as _, Params, ShaCrypt};
use sha2::{Digest as _, Sha256};

use crate::store::{Connection, Key, Store, StoreError};

/// The user's name in generated credentials.
const GENERATED_USERNAME: &str = "proxy";
/// The length of a generated password: 62^24 is beyond guessing.
const GENERATED_PASSWORD_LENGTH: usize = 24;
/// Rounds of SHA-crypt, glibc's own default: the machine checks a password once and caches the answer.
const PASSWORD_HASH_ROUNDS: u32 = 5_000;
/// The most bytes of a user's name and of a password from a Secret.
const CREDENTIAL_MAX_BYTES: usize = 255;

/// Who a client of the proxy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name.
    pub username: String,
    /// The password.
    pub password: Sensitive<String>,
}

/// What a Proxy's machine is made from, and what its probe needs.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// `None` for an open proxy.
    pub credentials: Option<Credentials>,
    /// For the provider.
    pub spec: InstanceSpec,
}

/// Gathers what a Proxy is made from. Credentials that are generated are written, durably, before they are used.
///
/// # Errors
/// A fault of the spec or of a Secret it names, in the words of a condition.
pub async fn gather(store: &Arc<dyn Store>, proxy: &Proxy, name_prefix: &str) -> Result<Inputs> {
    let faults = validate::proxy(&proxy.spec);
    if !faults.is_empty() {
        let message = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        return Err(Error::new(ErrorCode::InvalidProxy, "SpecInvalid", message));
    }
    let key = Key::of_proxy(proxy);
    let owner = proxy.metadata.uid.clone().unwrap_or_default();
    let credentials = credentials(store, proxy, &key).await?;
    let access = access(proxy, credentials.as_ref(), &owner)?;
    let software = Software { name: "squid".to_owned(), port: proxy.spec.port(), access };
    let cloud_init = cloud_init(store, proxy, &key, &software).await?;
    let parameters = serde_json::Value::Object(proxy.spec.parameters.clone()).to_string();
    let spec = InstanceSpec {
        name: format!("{name_prefix}{owner}"),
        owner,
        display_name: format!("{}/{}", key.namespace, key.name),
        machine_type: proxy.spec.machine_type.clone(),
        image: proxy.spec.image.clone(),
        placement: proxy.spec.placement.clone(),
        software,
        cloud_init,
        parameters,
    };
    Ok(Inputs { credentials, spec })
}

/// The credentials of a Proxy: of its Secret, or those that were generated, or new ones.
pub async fn credentials(store: &Arc<dyn Store>, proxy: &Proxy, key: &Key) -> Result<Option<Credentials>> {
    if proxy.spec.access.open {
        return Ok(None);
    }
    let known = store.connection(key).await.map_err(|error| store_failed(&error))?;
    let credentials = match &proxy.spec.access.secret {
        Some(secret) => Credentials {
            username: credential(store, key, secret, "username").await?,
            password: Sensitive::new(credential(store, key, secret, "password").await?),
        },
        None => match known.clone() {
            Some(Connection { username: Some(username), password: Some(password), .. }) => {
                return Ok(Some(Credentials { username, password }));
            }
            _ => Credentials { username: GENERATED_USERNAME.to_owned(), password: Sensitive::new(generate_password()) },
        },
    };
    let connection = Connection {
        username: Some(credentials.username.clone()),
        password: Some(credentials.password.clone()),
        endpoint: known.as_ref().and_then(|known| known.endpoint.clone()),
    };
    if known.as_ref() != Some(&connection) {
        store.put_connection(key, &connection).await.map_err(|error| store_failed(&error))?;
    }
    Ok(Some(credentials))
}

/// One value of a Secret with credentials, without the newline that editors add.
async fn credential(store: &Arc<dyn Store>, key: &Key, secret: &str, field: &str) -> Result<String> {
    let value = store.secret(&key.namespace, secret, field).await?;
    let invalid = |what: &str| {
        Error::new(ErrorCode::InvalidProxy, "CredentialsInvalid", format!("Secret {secret:?}, key {field}: {what}"))
    };
    let text = std::str::from_utf8(value.expose()).map_err(|_| invalid("is not UTF-8 text"))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() || text.len() > CREDENTIAL_MAX_BYTES {
        return Err(invalid(&format!("has {} bytes; 1 to {CREDENTIAL_MAX_BYTES} are usable", text.len())));
    }
    if text.chars().any(char::is_control) {
        return Err(invalid("holds a control character"));
    }
    if field == "username" && !text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(invalid("is not made of letters and digits alone"));
    }
    Ok(text.to_owned())
}

fn access(proxy: &Proxy, credentials: Option<&Credentials>, owner: &str) -> Result<Access> {
    let proxy_operator_api::proxy::Access { open, secret: _, allow_from, allow_private_destinations } =
        &proxy.spec.access;
    let credentials = match credentials {
        Some(Credentials { username, password }) => {
            vec![Credential { username: username.clone(), password_hash: hash(password, owner)? }]
        }
        None => vec![],
    };
    Ok(Access {
        credentials,
        allow_from: allow_from.iter().map(ToString::to_string).collect(),
        open: *open,
        private_destinations: allow_private_destinations.iter().map(ToString::to_string).collect(),
    })
}

async fn cloud_init(store: &Arc<dyn Store>, proxy: &Proxy, key: &Key, software: &Software) -> Result<CloudInit> {
    let Some(proxy_operator_api::proxy::CloudInit { user_data, user_data_from, vendor_data }) = &proxy.spec.cloud_init
    else {
        return Ok(CloudInit {
            user_data: Sensitive::new(squid::cloud_config(software)),
            author: Author::Operator,
            vendor_data: None,
        });
    };
    let user_data = match (user_data, user_data_from) {
        (Some(text), _) => Sensitive::new(text.clone().into_bytes()),
        (None, Some(from)) => {
            let document = store.secret(&key.namespace, &from.secret, &from.key).await?;
            if document.expose().len() > CLOUD_INIT_MAX_BYTES {
                let message = format!(
                    "spec.cloudInit.userDataFrom: Secret {:?}, key {}: has {} bytes; at most {CLOUD_INIT_MAX_BYTES} are delivered",
                    from.secret,
                    from.key,
                    document.expose().len()
                );
                return Err(Error::new(ErrorCode::InvalidProxy, "UserDataTooLarge", message));
            }
            document
        }
        (None, None) => Sensitive::default(),
    };
    Ok(CloudInit {
        user_data,
        author: Author::User,
        vendor_data: vendor_data.clone().map(|text| Sensitive::new(text.into_bytes())),
    })
}

/// `$5$rounds=…$salt$hash`. The salt is derived, so that the same credentials give the same document each time it is
/// rendered.
fn hash(password: &Sensitive<String>, owner: &str) -> Result<Sensitive<String>> {
    let mut hasher = Sha256::new();
    hasher.update((owner.len() as u64).to_be_bytes());
    hasher.update(owner.as_bytes());
    hasher.update(password.expose().as_bytes());
    let digest = hasher.finalize();
    let failed = || Error::internal("PasswordHashFailed", "the password cannot be hashed");
    let params = Params::new(PASSWORD_HASH_ROUNDS).map_err(|_| failed())?;
    // 12 bytes are 16 characters of salt, the most that crypt(3) takes.
    let salt = digest.get(..12).unwrap_or_default();
    let hash = ShaCrypt::SHA256
        .hash_password_customized(password.expose().as_bytes(), salt, None, None, params)
        .map_err(|_| failed())?;
    Ok(Sensitive::new(hash.to_string()))
}

/// Letters and digits alone: not every proxy software takes others.
fn generate_password() -> String {
    let mut rng = rand::rng();
    (0..GENERATED_PASSWORD_LENGTH).map(|_| char::from(rng.sample(rand::distr::Alphanumeric))).collect()
}

fn store_failed(error: &StoreError) -> Error {
    Error::unavailable("StoreUnavailable", error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_what_crypt_makes_of_the_password() {
        let hash = hash(&Sensitive::new("s3cr3t".to_owned()), "u1").expect("hashes");
        let script = "import crypt,sys,warnings; print(crypt.crypt('s3cr3t', sys.argv[1]))";
        let output = std::process::Command::new("/usr/bin/python3")
            .args(["-W", "ignore", "-c", script, hash.expose()])
            .output()
            .expect("runs /usr/bin/python3 (Debian package python3)");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), hash.expose());
    }

    #[test]
    fn the_same_credentials_give_the_same_hash() {
        let once = || hash(&Sensitive::new("s3cr3t".to_owned()), "u1").expect("hashes");
        assert_eq!(once(), once());
        assert_ne!(once(), hash(&Sensitive::new("s3cr3t".to_owned()), "u2").expect("hashes"));
    }

    #[test]
    fn generated_passwords_are_letters_and_digits() {
        let password = generate_password();
        assert_eq!(password.len(), GENERATED_PASSWORD_LENGTH);
        assert!(password.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert_ne!(password, generate_password());
    }
}
