package harness

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the process end with this one, also when this one panics
// or is killed and no cleanup runs.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
