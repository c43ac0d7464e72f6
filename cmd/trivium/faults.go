//go:build faults

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// A build with the tag faults is for tests only: it takes orders to break its own
// files and clock from the unix socket that this environment variable names. Each
// order is a line of JSON and is answered by a line: "ok", or what was wrong.
const faultsVariable = "FAULTY_TRIVIUM"

// order is one line. Rules add up until clear.
type order struct {
	Clear bool          `json:"clear"`
	Op    string        `json:"op"`    // sync, write, ...: adds a rule
	Name  string        `json:"name"`  // see vfs.Rule
	After int           `json:"after"` // see vfs.Rule
	Times int           `json:"times"` // see vfs.Rule
	Error string        `json:"error"` // EIO, ENOSPC or empty
	Delay time.Duration `json:"delay"` // nanoseconds
	Full  bool          `json:"full"`  // the volume tells that nothing is free
	Step  time.Duration `json:"step"`  // the clock is ahead by so much; in builds that can
	Clock bool          `json:"clock"` // take Step, also 0
}

var faultOps = map[string]vfs.Op{
	"create": vfs.OpCreate, "open": vfs.OpOpen, "read": vfs.OpRead, "write": vfs.OpWrite, "sync": vfs.OpSync,
	"truncate": vfs.OpTruncate, "preallocate": vfs.OpPreallocate, "remove": vfs.OpRemove, "rename": vfs.OpRename, "syncdir": vfs.OpSyncDir,
}

var faultErrors = map[string]error{"": nil, "EIO": syscall.EIO, "ENOSPC": fmt.Errorf("%w: %w", vfs.ErrNoSpace, syscall.ENOSPC)}

// setClock sets the clock ahead of the machine's; nil in builds that cannot.
var setClock func(time.Duration)

func init() {
	path := os.Getenv(faultsVariable)
	if path == "" {
		return
	}
	_ = os.Remove(path) // of the process before
	l, err := net.Listen("unix", path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(exitFaults)
	}
	go func() { // lives as long as the process
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			takeOrders(c)
		}
	}()
}

// exitFaults is the exit code of a build with faults that cannot be told any.
const exitFaults = 3

func takeOrders(c net.Conn) {
	defer c.Close()
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		answer := "ok"
		if err := obey(lines.Bytes()); err != nil {
			answer = err.Error()
		}
		if _, err := fmt.Fprintln(c, answer); err != nil {
			return
		}
	}
}

func obey(line []byte) error {
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		return err
	}
	if o.Clear {
		vfs.Injected().Clear()
	}
	if o.Full {
		vfs.Injected().SetFull()
	}
	if o.Clock {
		if setClock == nil {
			return fmt.Errorf("this build has no clock of its own")
		}
		setClock(o.Step)
	}
	if o.Op == "" {
		return nil
	}
	op, known := faultOps[o.Op]
	broken, named := faultErrors[o.Error]
	if !known || !named {
		return fmt.Errorf("no operation %q or no error %q", o.Op, o.Error)
	}
	vfs.Injected().Add(vfs.Rule{Op: op, Name: o.Name, After: o.After, Times: o.Times, Err: broken, Delay: o.Delay})
	return nil
}
