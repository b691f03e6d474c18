//! Calls of what a guest exports.

use std::sync::Arc;

use futures::FutureExt;
use proxy_operator_core::error::Result;
use proxy_operator_core::provider::{
    Check, Context, Deletion, Description, Fault, Instance, InstanceRef, InstanceSpec, Page,
};
use wasmtime::Store;

use super::bindings::Plugin;
use super::imports::types;
use super::lift::Lift;
use super::lower;
use crate::store::State;
use crate::watch::Watch;
use crate::wit::{Called, Guest};

/// What a guest's function of the kind `result<_, error>` returned, lifted.
fn answer<A, B>(
    watch: &Watch,
    answer: std::result::Result<A, types::Error>,
    lift: impl Fn(&Lift<'_>, A) -> Result<B>,
) -> Result<B> {
    let lifter = Lift(watch);
    match answer {
        Ok(value) => lift(&lifter, value),
        Err(error) => Err(lifter.error(error)),
    }
}

fn watch(store: &Store<State>) -> Arc<Watch> {
    Arc::clone(&store.data().watch)
}

impl Guest for Plugin {
    fn describe<'a>(&'a self, store: &'a mut Store<State>) -> Called<'a, Description> {
        async move {
            let watch = watch(store);
            let described = self.proxy_operator_provider_provider().call_describe(store).await?;
            Ok(Lift(&watch).description(described))
        }
        .boxed()
    }

    fn validate<'a>(&'a self, store: &'a mut Store<State>, context: &'a Context) -> Called<'a, Vec<Fault>> {
        async move {
            let watch = watch(store);
            let context = lower::context(context);
            let validated = self.proxy_operator_provider_provider().call_validate(store, &context).await?;
            Ok(Ok(Lift(&watch).faults(validated.err().unwrap_or_default())))
        }
        .boxed()
    }

    fn place<'a>(
        &'a self,
        store: &'a mut Store<State>,
        context: &'a Context,
        spec: &'a InstanceSpec,
        avoid: &'a [String],
    ) -> Called<'a, String> {
        async move {
            let watch = watch(store);
            let (context, spec) = (lower::context(context), lower::instance_spec(spec));
            let placed = self.proxy_operator_provider_provider().call_place(store, &context, &spec, avoid).await?;
            Ok(answer(&watch, placed, |lift, id| lift.place(id)))
        }
        .boxed()
    }

    fn create<'a>(
        &'a self,
        store: &'a mut Store<State>,
        context: &'a Context,
        instance: &'a InstanceRef,
        spec: &'a InstanceSpec,
    ) -> Called<'a, Instance> {
        async move {
            let watch = watch(store);
            let (context, instance) = (lower::context(context), lower::instance_ref(instance));
            let spec = lower::instance_spec(spec);
            let created =
                self.proxy_operator_provider_provider().call_create(store, &context, &instance, &spec).await?;
            Ok(answer(&watch, created, |lift, instance| lift.instance(instance)))
        }
        .boxed()
    }

    fn get<'a>(
        &'a self,
        store: &'a mut Store<State>,
        context: &'a Context,
        instance: &'a InstanceRef,
    ) -> Called<'a, Instance> {
        async move {
            let watch = watch(store);
            let (context, instance) = (lower::context(context), lower::instance_ref(instance));
            let got = self.proxy_operator_provider_provider().call_get(store, &context, &instance).await?;
            Ok(answer(&watch, got, |lift, instance| lift.instance(instance)))
        }
        .boxed()
    }

    fn list<'a>(
        &'a self,
        store: &'a mut Store<State>,
        context: &'a Context,
        owner: Option<&'a str>,
        cursor: Option<&'a str>,
    ) -> Called<'a, Page> {
        async move {
            let watch = watch(store);
            let context = lower::context(context);
            let listed = self.proxy_operator_provider_provider().call_list(store, &context, owner, cursor).await?;
            Ok(answer(&watch, listed, |lift, page| lift.page(page)))
        }
        .boxed()
    }

    fn delete<'a>(
        &'a self,
        store: &'a mut Store<State>,
        context: &'a Context,
        instance: &'a InstanceRef,
    ) -> Called<'a, Deletion> {
        async move {
            let watch = watch(store);
            let (context, instance) = (lower::context(context), lower::instance_ref(instance));
            let deleted = self.proxy_operator_provider_provider().call_delete(store, &context, &instance).await?;
            Ok(answer(&watch, deleted, |lift, deletion| lift.deletion(deletion)))
        }
        .boxed()
    }

    fn health<'a>(&'a self, store: &'a mut Store<State>, context: &'a Context) -> Called<'a, Vec<Check>> {
        async move {
            let watch = watch(store);
            let context = lower::context(context);
            let checks = self.proxy_operator_provider_provider().call_health(store, &context).await?;
            Ok(Lift(&watch).checks(checks))
        }
        .boxed()
    }
}
