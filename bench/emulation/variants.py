"""The options of the emulation that are worth a question, in groups. The first of each group is the base."""

from machine import CPU, Variant

SANDLING = Variant("Sandling's")


def cpu(name, suffix):
    return Variant(name, cpu=f"{CPU},{suffix}")


CPU_FEATURES = [
    SANDLING,
    Variant("with erms", cpu=CPU.replace(",erms=off", "")),
    cpu("without fsrm", "fsrm=off"),
    cpu("without smap", "smap=off"),
    cpu("without smap, smep, umip", "smap=off,smep=off,umip=off"),
    cpu("without avx2", "avx2=off"),
    cpu("without avx", "avx2=off,avx=off"),
    cpu("without xsave", "avx2=off,avx=off,xsave=off"),
]

CPU_MODELS = [SANDLING, *(Variant(model, cpu=model) for model in ["qemu64", "Nehalem", "Haswell-v4", "EPYC-v3"])]

TRANSLATION = [
    SANDLING,
    *(Variant(f"{mib} MiB of code", translation_mib=mib) for mib in [32, 64, 512, 1024]),
]

VCPUS = [SANDLING, *(Variant(f"{count} vCPUs", vcpus=count) for count in [2, 4])]

MEMORY = [
    SANDLING,
    Variant("host: huge pages", memory="huge"),
    Variant("guest: huge pages", kernel="transparent_hugepage=always"),
    Variant("guest: huge pages if asked for", kernel="transparent_hugepage=madvise"),
    Variant("guest: no huge pages", kernel="transparent_hugepage=never"),
    Variant("both: huge pages", memory="huge", kernel="transparent_hugepage=always"),
]

KERNEL = [
    SANDLING,
    Variant("mitigations", kernel="mitigations=auto"),
    Variant("page tables isolated", kernel="mitigations=auto pti=on"),
    Variant("ticks while idle", kernel="nohz=off"),
    Variant("coarse timers", kernel="highres=off"),
    Variant("no timer of the CPU", kernel="nolapic_timer"),
    Variant("audit, psi", kernel="audit=1 psi=1"),
    Variant("pages zeroed", kernel="init_on_alloc=1"),
    Variant("no user access prevention", kernel="nosmap nosmep"),
    Variant("random addresses", kernel="sysctl.kernel.randomize_va_space=2"),
]

GROUPS = {
    "features": CPU_FEATURES,
    "models": CPU_MODELS,
    "translation": TRANSLATION,
    "vcpus": VCPUS,
    "memory": MEMORY,
    "kernel": KERNEL,
}


def qemus(roots):
    """The same machine with the host's QEMU and with others, given as name → directory."""
    return [SANDLING, *(Variant(name, qemu=root) for name, root in roots.items())]
