//! Prevents that a batch is carried out twice, and that a visit lasts for ever.

use stagger_engine::cluster::BackendError;

use crate::visit::JobBatch;

/// So often the cluster is looked at for what was just done.
pub(crate) const LOOKS: u32 = 20;

/// More batches than a visit can need.
const MOST_BATCHES: u32 = 40;

/// Lets no batch be carried out twice, and no visit go on for ever.
pub(crate) struct Pacer<'a> {
    tried: &'a str,
    done: Vec<JobBatch>,
    looks: u32,
}

impl<'a> Pacer<'a> {
    pub(crate) fn new(tried: &'a str) -> Self {
        Self {
            tried,
            done: Vec::new(),
            looks: 0,
        }
    }

    /// Whether a batch is to be carried out; if not, the cluster is looked at again.
    pub(crate) fn is_new(&mut self, batch: &JobBatch) -> Result<bool, BackendError> {
        if !self.done.contains(batch) {
            self.done.push(batch.clone());
            self.looks = 0;
            if self.done.len() > MOST_BATCHES as usize {
                let why = "each time something is done, something else is to be done".to_owned();
                return Err(BackendError::permanent(self.tried, why));
            }
            return Ok(true);
        }
        self.looks += 1;
        if self.looks > LOOKS {
            let why = match batch {
                JobBatch::Look(why) => why.clone(),
                done => format!("{}, and the cluster does not show it", in_words(done)),
            };
            return Err(BackendError::permanent(self.tried, why));
        }
        Ok(false)
    }
}

/// What was done, for who reads that it does not show.
fn in_words(batch: &JobBatch) -> String {
    match batch {
        JobBatch::Failover { to } => format!("{to} was made the master"),
        JobBatch::Note(_) => "it was noted what is taken away".to_owned(),
        JobBatch::Drain { .. } => "the node was drained".to_owned(),
        JobBatch::Move(moves) => {
            let names: Vec<_> = moves.iter().map(|each| each.instance.as_str()).collect();
            format!("{} were moved", names.join(" "))
        }
        JobBatch::Replace(copies) => {
            let names: Vec<_> = copies.iter().map(|each| each.instance.as_str()).collect();
            format!("second copies of {} were made", names.join(" "))
        }
        JobBatch::Stop(names) => format!("{} were shut down", names.join(" ")),
        JobBatch::Return(_) => "the node got its role back".to_owned(),
        JobBatch::Sync(names) => format!("disks of {} were brought in sync", names.join(" ")),
        JobBatch::Start(names) => format!("{} were started", names.join(" ")),
        JobBatch::Forget(_) => "the notes were taken away".to_owned(),
        JobBatch::Look(why) => why.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_batch_is_carried_out_twice() {
        let mut pacer = Pacer::new("try");
        let drain = JobBatch::Drain { promotes: false };
        assert!(pacer.is_new(&drain).unwrap());
        assert!(!pacer.is_new(&drain).unwrap());
        assert!(pacer.is_new(&JobBatch::Start(vec!["a".to_owned()])).unwrap());
        for _ in 0..LOOKS {
            assert!(!pacer.is_new(&drain).unwrap());
        }
        assert!(pacer.is_new(&drain).is_err());
    }
}
