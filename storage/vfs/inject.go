//go:build faults

package vfs

import (
	"os"
	"sync"
)

// LoseVariable is the environment variable that, when it is not empty, puts
// [Unsynced] before the operating system's files, so that a kill is a power loss.
const LoseVariable = "FAULTY_TRIVIUM_LOSE"

// Injected returns what breaks the files of this process by rules.
var Injected = sync.OnceValue(func() *Fault {
	var under FS = osFS{}
	if os.Getenv(LoseVariable) != "" {
		under = NewUnsynced(under)
	}
	return NewFault(under)
})

func injected(FS) FS { return Injected() }
