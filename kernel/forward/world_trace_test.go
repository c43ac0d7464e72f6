package forward

import (
	"fmt"
	"os"
	"time"
)

var tracing = os.Getenv("TRIVIUM_TRACE") != ""

// trace says what happens, if TRIVIUM_TRACE is set.
func (w *world) trace(format string, args ...any) {
	if tracing {
		fmt.Fprintf(os.Stderr, "%s %s\n", time.Now().Format("04:05.000"), fmt.Sprintf(format, args...))
	}
}
