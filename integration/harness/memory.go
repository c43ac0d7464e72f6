package harness

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory returns the resident memory of the process and its highest value since
// Run or ForgetPeak, in bytes. ok is false where the system does not tell.
func (b *Broker) Memory() (now, peak int64, ok bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.PID()))
	if err != nil {
		return 0, 0, false
	}
	field := func(name string) (v int64) {
		_, rest, _ := strings.Cut(string(status), "\n"+name+":")
		words := strings.Fields(rest)
		if len(words) == 0 {
			return 0
		}
		v, _ = strconv.ParseInt(words[0], 10, 64) // 0 stands for "not told"
		return v << 10
	}
	now, peak = field("VmRSS"), field("VmHWM")
	return now, peak, now > 0 && peak > 0
}

// ForgetPeak makes the present memory the highest.
func (b *Broker) ForgetPeak() {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", b.PID()), []byte("5"), 0) // else the peak is that since Run
}
