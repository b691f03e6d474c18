//! `images`, on behalf of a guest.

use proxy_operator_core::capability::images as core;

use super::imports::images;
use super::lower;
use crate::bounds::argument;
use crate::limits;
use crate::store::{Answer, State};

impl images::Host for State {
    async fn ensure(&mut self, host: String, pool: String, source: images::Source) -> Answer<images::Status> {
        const FUNCTION: &str = "images.ensure";
        let images::Source { key, url, digest } = source;
        let key_size = key.as_ref().map_or(0, String::len);
        let digest_size = digest.as_ref().map_or(0, String::len);
        argument(FUNCTION, "host", host.len(), limits::NAME)?;
        argument(FUNCTION, "pool", pool.len(), limits::NAME)?;
        argument(FUNCTION, "source.key", key_size, limits::NAME)?;
        argument(FUNCTION, "source.url", url.len(), limits::URL)?;
        argument(FUNCTION, "source.digest", digest_size, limits::NAME)?;
        let images = self.images(FUNCTION)?;
        let _waiting = self.wait(FUNCTION, &host);
        let status = images.ensure(&host, &pool, &core::Source { key, url, digest }).await?;
        Ok(match status {
            core::Status::Ready(core::BaseImage { volume, format, capacity }) => {
                images::Status::Ready(images::BaseImage { volume, format: lower::volume_format(format), capacity })
            }
            core::Status::Pending(core::Transfer { reason, message, percent }) => {
                images::Status::Pending(images::Transfer { reason, message, percent })
            }
        })
    }
}
