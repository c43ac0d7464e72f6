package raftgroup

import (
	"errors"
	"fmt"
	"io"
	"log"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"
)

// repeatAfter is how long one message of the library is kept quiet after it
// was logged: it says the same thing many times a second when a peer is away.
const repeatAfter = 5 * time.Second

// ordinary are the warnings and errors of the library that come with every node that
// joins, stops or takes over, and the level at which we have them. Which nodes are not
// reached, and that nobody leads, is told by who knows the nodes by name. What is not
// here, such as a quorum that is lost or a disk that fails, stays what it is.
var ordinary = map[string]zerolog.Level{
	// A peer is down, starts or has no such group yet.
	"failed to appendEntries to":                zerolog.InfoLevel,
	"failed to heartbeat to":                    zerolog.InfoLevel,
	"failed to pipeline appendEntries":          zerolog.InfoLevel,
	"failed to start pipeline replication to":   zerolog.InfoLevel,
	"failed to make requestVote RPC":            zerolog.InfoLevel,
	"failed to contact":                         zerolog.InfoLevel,
	"peer has newer term, stopping replication": zerolog.InfoLevel,
	// A member that catches up.
	"appendEntries rejected, sending older logs": zerolog.DebugLevel,
	"failed to get previous log":                 zerolog.DebugLevel, // when it is not there: see level
	"skipping application of old log":            zerolog.DebugLevel,
	// Elections.
	"heartbeat timeout reached, starting election":                                                                   zerolog.InfoLevel,
	"heartbeat timeout reached, not part of a stable configuration or a non-voter, not triggering a leader election": zerolog.InfoLevel,
	"new leader elected, stepping down":                                                                              zerolog.InfoLevel,
	"no known peers, aborting election":                                                                              zerolog.InfoLevel,
	"not part of stable configuration, aborting election":                                                            zerolog.InfoLevel,
	"duplicate requestVote from":                                                                                     zerolog.InfoLevel,
	"rejecting vote request since node is not a voter":                                                               zerolog.InfoLevel,
	"rejecting vote request since node is not in configuration":                                                      zerolog.InfoLevel,
	"rejecting vote request since our last index is greater":                                                         zerolog.InfoLevel,
	"rejecting vote request since our last term is greater":                                                          zerolog.InfoLevel,
	"rejecting vote request since we have a leader":                                                                  zerolog.InfoLevel,
	"rejecting pre-vote request since node is not a voter":                                                           zerolog.InfoLevel,
	"rejecting pre-vote request since node is not in configuration":                                                  zerolog.InfoLevel,
	"rejecting pre-vote request since our last index is greater":                                                     zerolog.InfoLevel,
	"rejecting pre-vote request since our last term is greater":                                                      zerolog.InfoLevel,
	"rejecting pre-vote request since we have a leader":                                                              zerolog.InfoLevel,
}

// level is that of a message of the library here.
func level(of hclog.Level, msg string, args []any) zerolog.Level {
	is := zerolog.WarnLevel
	if of >= hclog.Error {
		is = zerolog.ErrorLevel
	}
	for _, arg := range args {
		if err, ok := arg.(error); ok && msg == "failed to get previous log" && !errors.Is(err, raft.ErrLogNotFound) {
			return is
		}
	}
	if mild, ok := ordinary[msg]; ok {
		return mild
	}
	return is
}

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
func (l *logger) Log(of hclog.Level, msg string, args ...any) {
	if of < hclog.Warn || !l.quiet.pass(msg) {
		return
	}
	e := l.out.WithLevel(level(of, msg, args))
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
