//! Why a sandbox's network cannot be as it is wanted.

use sandling_network::{AuthorityError, BadLimit, BadSecret, StartError};
use sandling_vmm::machine::MachineError;

use crate::link::LinkError;
use crate::store::StoreError;

#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error("there is no secret `{0}`; store it first with `sandling secret set`")]
    NoSecret(String),
    #[error("a sandbox can be given at most {most} secrets")]
    TooMany { most: usize },
    #[error("a workspace can store at most {most} secrets; remove one first")]
    Full { most: usize },
    #[error("only a workspace's default can bind; a template's is for sandboxes that say nothing")]
    TemplateBinds,
    #[error("there is no policy that could bind; say one, too")]
    NothingBinds,
    #[error("an allow or deny list has at most {most} entries; a network or `*.name` stands for many")]
    TooLong { most: usize },
    #[error("a secret's name has up to 64 letters, digits and _, and begins with no digit: it names a variable")]
    SecretName,
    #[error("a secret's value has at most {most} bytes")]
    SecretLength { most: usize },
    #[error("a variable that programs find certificates or each other by cannot be a secret's name")]
    ReservedName,
    #[error("only secrets that an older version stored have the placement `any header`; name each header instead")]
    AnyHeader,
    #[error("a group and a name in it have up to 40 lower-case letters, digits and dashes, and a name is no id")]
    GroupWords,
    #[error("a group has at most {most} sandboxes")]
    GroupFull { most: usize },
    #[error("another sandbox of that group is called `{0}`")]
    NameTaken(String),
    #[error(transparent)]
    Limit(#[from] BadLimit),
    #[error(transparent)]
    Secret(#[from] BadSecret),
    #[error("a sandbox must run, and answer, to be given a secret or to have its TLS opened")]
    NotRunning,
    #[error("the key that secrets are encrypted with cannot be used")]
    Key(#[source] std::io::Error),
    #[error("the sandbox's authority could not be made")]
    Authority(#[from] AuthorityError),
    #[error("the guest could not be told of its secrets or its authority")]
    Guest(#[from] LinkError),
    #[error("the guest could not be told to trust its authority: its shell ended with {code}")]
    Install { code: i32 },
    #[error("the machine's network card is out of reach")]
    Machine(#[from] MachineError),
    #[error("the gateway did not start")]
    Start(#[from] StartError),
    #[error("the sandbox has ended")]
    Ended,
    #[error(transparent)]
    Store(#[from] StoreError),
}
