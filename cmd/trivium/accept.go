package main

import (
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/protocols/listener"
)

// connectionBudget is how many connections a process that may have so many files
// open takes; 0 is no limit. The rest is for the node's own files: a log that
// cannot open its next file takes nothing more.
func connectionBudget(files uint64) int {
	if files == 0 || files > 1<<30 {
		return 0
	}
	return max(int(files)-max(64, int(files/10)), 1)
}

// shares are what the node's limit of connections, 0 = none, is made of.
type shares struct {
	node    int // all
	clients int // all but HTTP's: an operator gets in when clients take all there is
	unknown int // of one address that have not logged in; once more for HTTP, which answers health checks
}

// shareOut shares the node's limit out. unknown is the limit for one address that
// is configured, 0 = none; one address gets no more than a quarter of the node's.
func shareOut(node, unknown int) shares {
	s := shares{node: node, unknown: unknown}
	if node > 0 {
		s.clients = max(node-max(min(node/8, 64), 1), 1)
		if quarter := max(node/4, 1); unknown > quarter {
			s.unknown = quarter
		}
	}
	return s
}

// acceptLog tells of connections that were not accepted, but not of each. What
// health checks and port scans do is told at debug level.
type acceptLog struct {
	log  zerolog.Logger
	now  func() time.Time
	mu   sync.Mutex
	last map[error]time.Time // by kind
	more map[error]int       // not told since
}

const acceptEvery = 5 * time.Second

func newAcceptLog(log zerolog.Logger) *acceptLog {
	return &acceptLog{log: log, now: time.Now, last: map[error]time.Time{}, more: map[error]int{}}
}

// refusals are the kinds of which each is told in its turn; the rest is another.
var refusals = []error{listener.ErrBudget, listener.ErrAddressBudget, listener.ErrHandshakes, listener.ErrHandshake}

func (a *acceptLog) report(err error) {
	if errors.Is(err, listener.ErrNoise) {
		a.log.Debug().Err(err).Msg("a connection was not accepted")
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var kind error
	for _, k := range refusals {
		if errors.Is(err, k) {
			kind = k
			break
		}
	}
	now := a.now()
	if last, ok := a.last[kind]; ok && now.Sub(last) < acceptEvery {
		a.more[kind]++
		return
	}
	a.log.Warn().Err(err).Int("untold", a.more[kind]).Msg("a connection was not accepted")
	a.last[kind], a.more[kind] = now, 0
}
