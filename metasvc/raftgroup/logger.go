package raftgroup

import (
	"fmt"
	"io"
	"log"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/rs/zerolog"
)

// repeatAfter is how long one message of the library is kept quiet after it
// was logged: it says the same thing many times a second when a peer is away.
const repeatAfter = 5 * time.Second

// logger is an hclog.Logger that writes warnings and errors to zerolog.
type logger struct {
	out  zerolog.Logger
	name string
	args []any

	quiet *quiet
}

type quiet struct {
	mu   sync.Mutex
	last map[string]time.Time // by message; the library has some dozens
}

var _ hclog.Logger = (*logger)(nil)

func newLogger(out zerolog.Logger) *logger {
	return &logger{out: out, name: "raft", quiet: &quiet{last: map[string]time.Time{}}}
}

func (q *quiet) pass(msg string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if now.Sub(q.last[msg]) < repeatAfter || len(q.last) > 1000 {
		return false
	}
	q.last[msg] = now
	return true
}

// Log implements hclog.Logger.
func (l *logger) Log(level hclog.Level, msg string, args ...any) {
	if level < hclog.Warn || !l.quiet.pass(msg) {
		return
	}
	e := l.out.Warn()
	if level >= hclog.Error {
		e = l.out.Error()
	}
	l.fields(e, l.args)
	l.fields(e, args)
	e.Str("component", l.name).Msg(msg)
}

func (l *logger) fields(e *zerolog.Event, args []any) {
	for i := 0; i+1 < len(args); i += 2 {
		key, value := fmt.Sprint(args[i]), args[i+1]
		if f, ok := value.(hclog.Format); ok && len(f) > 0 {
			value = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
		if err, ok := value.(error); ok {
			e.AnErr(key, err)
			continue
		}
		e.Str(key, fmt.Sprint(value))
	}
}

func (l *logger) Trace(string, ...any)          {}
func (l *logger) Debug(string, ...any)          {}
func (l *logger) Info(string, ...any)           {}
func (l *logger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *logger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }
func (l *logger) IsTrace() bool                 { return false }
func (l *logger) IsDebug() bool                 { return false }
func (l *logger) IsInfo() bool                  { return false }
func (l *logger) IsWarn() bool                  { return true }
func (l *logger) IsError() bool                 { return true }
func (l *logger) ImpliedArgs() []any            { return l.args }
func (l *logger) Name() string                  { return l.name }
func (l *logger) SetLevel(hclog.Level)          {}
func (l *logger) GetLevel() hclog.Level         { return hclog.Warn }

// With implements hclog.Logger.
func (l *logger) With(args ...any) hclog.Logger {
	c := *l
	c.args = append(append([]any(nil), l.args...), args...)
	return &c
}

// Named implements hclog.Logger.
func (l *logger) Named(name string) hclog.Logger { return l.ResetNamed(l.name + "." + name) }

// ResetNamed implements hclog.Logger.
func (l *logger) ResetNamed(name string) hclog.Logger {
	c := *l
	c.name = name
	return &c
}

// StandardLogger implements hclog.Logger.
func (l *logger) StandardLogger(o *hclog.StandardLoggerOptions) *log.Logger {
	return log.New(l.StandardWriter(o), "", 0)
}

// StandardWriter implements hclog.Logger.
func (l *logger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer { return l.out }
