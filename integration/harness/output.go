package harness

import (
	"bytes"
	"sync"
)

// readyLine is what the binary says when every listener accepts.
const readyLine = "Server startup complete"

// output keeps the end of what a process writes and notices the ready line.
type output struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	ready chan struct{}
	once  sync.Once
	line  bytes.Buffer
}

func newOutput() *output { return &output{ready: make(chan struct{})} }

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(p)
	if over := o.buf.Len() - 1<<16; over > 1<<15 {
		o.buf.Next(over)
	}
	o.line.Write(p)
	if bytes.Contains(o.line.Bytes(), []byte(readyLine)) {
		o.once.Do(func() { close(o.ready) })
	}
	if i := bytes.LastIndexByte(o.line.Bytes(), '\n'); i >= 0 {
		o.line.Next(i + 1)
	}
	return len(p), nil
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
