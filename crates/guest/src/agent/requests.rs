//! Dispatches the host's messages.

use sandling_protocol::{Failure, FailureKind, Request, Response, StreamId, ToGuest, ToHost, generation};

use super::state::Agent;
use crate::failure::{failure, io_failure};
use crate::streams::{Kind, Stream};
use crate::worker::{WorkerStream, Workers, no_upload};
use crate::{disk, files, ports, usage, volumes};

impl Agent {
    pub fn received(&mut self, message: ToGuest, body: Vec<u8>) {
        match message {
            ToGuest::Hello { nonce, generation } => {
                self.link.forget_unsent();
                self.end_session();
                self.streams.greeted = true;
                self.streams.send(&ToHost::Hello { nonce, generation: generation::agree(generation) }, &[]);
            }
            _ if !self.streams.greeted => {}
            ToGuest::Open { stream, request } => self.open(stream, request, &body),
            ToGuest::Data { stream } => self.data(stream, body),
            ToGuest::Finish { stream } => self.finish(stream),
            ToGuest::Credit { stream, bytes } => self.credit(stream, bytes as usize),
            ToGuest::Cancel { stream } => {
                if let Some(open) = self.streams.remove(stream) {
                    self.release(stream, open);
                }
            }
        }
    }

    /// Drops all streams. Commands and cells keep running.
    pub fn end_session(&mut self) {
        for (stream, open) in self.streams.end_session() {
            self.release(stream, open);
        }
    }

    fn release(&mut self, stream: StreamId, open: Stream) {
        match open.kind {
            Kind::Viewer { exec, .. } => self.viewer_left(stream, exec),
            Kind::Cell { context } => self.cell_listener_left(context),
            Kind::Worker(end) => end.cancel(),
            Kind::Tunnel => drop(self.tunnels.remove(&stream)),
            Kind::Waiting => {
                self.interpreters.forget_waiting(stream);
                self.contexts.forget_waiting(stream);
            }
            Kind::Ended { .. } => {}
        }
    }

    fn open(&mut self, stream: StreamId, request: Request, body: &[u8]) {
        if self.streams.get(stream).is_some() {
            return;
        }
        let full = self.streams.is_full();
        self.streams.open(stream);
        let opened = if full {
            Err(failure(FailureKind::Busy, "too many requests at once; retry later"))
        } else {
            self.handle(stream, request, body)
        };
        if let Some(result) = opened.transpose() {
            self.streams.end(stream, result);
        }
    }

    /// Returns the answer, or `None` if the stream stays open and another handler ends it.
    fn handle(&mut self, stream: StreamId, request: Request, body: &[u8]) -> Result<Option<Response>, Failure> {
        Ok(match request {
            Request::Identify(identity) => Some(Response::Identified(self.identify(identity)?)),
            Request::AddVariables { variables } => {
                self.variables.extend(variables);
                Some(Response::Done)
            }
            Request::Settle { language } => self.settle(stream, language).map(|()| None)?,
            Request::Warm { language, imports } => self.warm(stream, language, imports).map(|()| None)?,
            Request::Run(spec) => self.run(stream, spec, body).map(|()| None)?,
            Request::Attach { exec, from } => self.attach(stream, &exec, from).map(|()| None)?,
            Request::Signal { exec, signal } => Some(self.signal(&exec, signal)?),
            Request::Resize { exec, size } => Some(self.resize(&exec, size)?),
            Request::ListExecs => Some(self.list_execs()),
            Request::Forget { exec } => Some(self.forget(&exec)?),
            Request::CreateContext(spec) => self.create_context(stream, spec).map(|()| None)?,
            Request::RunCell(spec) => self.run_cell(stream, &spec, body).map(|()| None)?,
            Request::Interrupt { context } => Some(self.interrupt(&context)?),
            Request::RestartContext { context } => self.restart_context(stream, &context).map(|()| None)?,
            Request::CloseContext { context } => Some(self.close_context(&context)?),
            Request::ListContexts => Some(self.list_contexts()),
            Request::Connect { port } => self.connect(stream, port).map(|()| None)?,
            Request::ListPorts => Some(Response::Ports { ports: ports::listening() }),
            Request::Freeze => Some(self.freeze()?),
            Request::Usage => Some(Response::Usage(usage::now())),
            Request::Sync => self.work(stream, |work| {
                rustix::fs::sync();
                work.end(Ok(Response::Done));
            })?,
            Request::GrowDisk { bytes } => self.work(stream, move |work| work.end(disk::grow_root(bytes)))?,
            Request::MountVolume { slot, path, read_only } => {
                self.work(stream, move |work| work.end(volumes::mount(slot, &path, read_only)))?
            }
            Request::UnmountVolume { slot, lost } => {
                self.work(stream, move |work| work.end(volumes::unmount(slot, lost)))?
            }
            Request::TakeDisk { upload, disk } => {
                let taken = self.worker_stream(stream)?;
                let Some(Kind::Worker(upload)) = self.streams.kind(upload) else { return Err(no_upload()) };
                let (upload, own) = (upload.clone(), taken.channel());
                self.streams.set_kind(stream, Kind::Worker(own));
                upload.deliver_disk(disk, taken);
                None
            }
            watch @ Request::Watch { .. } => {
                let watchers = self.watchers.clone();
                self.work_on(&watchers, stream, move |work| files::serve(watch, work))?
            }
            file => self.work(stream, move |work| files::serve(file, work))?,
        })
    }

    fn freeze(&mut self) -> Result<Response, Failure> {
        self.cgroups.freeze().map_err(|error| io_failure("stopping the processes", &error))?;
        Ok(Response::Done)
    }

    /// Hands a stream to a worker thread.
    fn work(
        &mut self,
        stream: StreamId,
        job: impl FnOnce(WorkerStream) + Send + 'static,
    ) -> Result<Option<Response>, Failure> {
        let workers = self.workers.clone();
        self.work_on(&workers, stream, job)
    }

    fn work_on(
        &mut self,
        workers: &Workers,
        stream: StreamId,
        job: impl FnOnce(WorkerStream) + Send + 'static,
    ) -> Result<Option<Response>, Failure> {
        let work = self.worker_stream(stream)?;
        let end = work.channel();
        workers.run(move || job(work))?;
        self.streams.set_kind(stream, Kind::Worker(end));
        Ok(None)
    }

    fn worker_stream(&self, stream: StreamId) -> Result<WorkerStream, Failure> {
        WorkerStream::new(stream, self.streams.session, self.streams.outbox.clone())
            .map_err(|error| io_failure("a worker", &error))
    }

    fn data(&mut self, stream: StreamId, bytes: Vec<u8>) {
        let Some(open) = self.streams.get(stream) else {
            return;
        };
        let length = bytes.len();
        let within = match &open.kind {
            Kind::Worker(end) => {
                return if end.deliver(bytes).is_err() {
                    self.overrun(stream)
                };
            }
            _ => open.window.checked_sub(length),
        };
        let Some(window) = within else {
            return self.overrun(stream);
        };
        open.window = window;
        match open.kind {
            Kind::Viewer { exec, .. } => self.exec_input(stream, exec, bytes),
            Kind::Tunnel => self.tunnel_input(stream, &bytes),
            _ => self.streams.consumed(stream, length),
        }
    }

    /// Ends a stream on which the host sent more than the window allows. Other streams are not affected.
    fn overrun(&mut self, stream: StreamId) {
        let failure = failure(FailureKind::Invalid, "more data than the window allows");
        if let Some(open) = self.streams.remove(stream) {
            let outcome = sandling_protocol::Outcome::Failed(failure);
            self.streams.send(&ToHost::End { stream, outcome }, &[]);
            self.release(stream, open);
        }
    }

    fn finish(&mut self, stream: StreamId) {
        match self.streams.kind(stream) {
            Some(&mut Kind::Viewer { exec, .. }) => self.exec_input_finished(exec),
            Some(Kind::Worker(end)) => end.finish(),
            Some(Kind::Tunnel) => self.tunnel_input_finished(stream),
            _ => {}
        }
    }

    fn credit(&mut self, stream: StreamId, bytes: usize) {
        let Some(open) = self.streams.get(stream) else {
            return;
        };
        open.credit = open.credit.saturating_add(bytes);
        if let Kind::Worker(end) = &open.kind {
            end.add_credit(bytes);
        }
        self.pump(stream);
    }

    /// Sends a stream's pending data.
    pub fn pump(&mut self, stream: StreamId) {
        match self.streams.kind(stream) {
            Some(Kind::Viewer { .. }) => self.pump_viewer(stream),
            Some(&mut Kind::Cell { context }) => self.pump_cell(context),
            Some(Kind::Ended { .. }) => self.pump_ended(stream),
            Some(Kind::Tunnel) => self.tunnel_ready(stream),
            Some(Kind::Worker(_) | Kind::Waiting) | None => {}
        }
    }
}
