package admin

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// largeBodies is how many large bodies may be in memory at a time.
	largeBodies = 2
	// bodyWait is how long a request waits for a place for its large body, and
	// bodyStep how long the next 64 KiB of one that has a place may take.
	bodyWait = 15 * time.Second
	bodyStep = 2 * time.Second
)

// bodies makes sure that few large bodies are in memory at a time, and one of each
// user, so that nobody keeps the others from it. Safe for concurrent use.
type bodies struct {
	places chan struct{}
	mu     *sync.Mutex
	users  map[string]*share // that have or want a place
}

// share is a user's share of the places.
type share struct {
	place chan struct{}
	wants int
}

func newBodies() bodies {
	return bodies{places: make(chan struct{}, largeBodies), mu: new(sync.Mutex), users: map[string]*share{}}
}

// take waits for a place for a body of user. The caller calls done. ok is false if
// there was none in time, or over is closed.
func (b *bodies) take(user string, wait time.Duration, over <-chan struct{}) (done func(), ok bool) {
	b.mu.Lock()
	own := b.users[user]
	if own == nil {
		own = &share{place: make(chan struct{}, 1)}
		b.users[user] = own
	}
	own.wants++
	b.mu.Unlock()
	leave := func() {
		b.mu.Lock()
		if own.wants--; own.wants == 0 {
			delete(b.users, user)
		}
		b.mu.Unlock()
	}
	limit := time.NewTimer(wait)
	defer limit.Stop()
	got := 0
	for _, place := range []chan struct{}{own.place, b.places} {
		select {
		case place <- struct{}{}:
			got++
			continue
		case <-limit.C:
		case <-over:
		}
		break
	}
	if got == 2 {
		return func() { <-b.places; <-own.place; leave() }, true
	}
	if got == 1 {
		<-own.place
	}
	leave()
	return nil, false
}

// readLarge decodes a body that may be large into v. Only one that is takes a
// place, when its beginning is there; the rest has to come without delay. The
// caller calls done, unless there is an error.
func (c *call) readLarge(v any) (done func(), err error) {
	body := http.MaxBytesReader(c.w, c.r.Body, largeBody)
	var raw bytes.Buffer
	n, err := io.CopyN(&raw, body, smallBody+1)
	if err != nil && err != io.EOF {
		return nil, unread(err, largeBody)
	}
	done = func() {}
	if n > smallBody {
		var ok bool
		if done, ok = c.s.bodies.take(c.user.Name, bodyWait, c.r.Context().Done()); !ok {
			return nil, &refusal{http.StatusServiceUnavailable, "unavailable", "too many large bodies at a time"}
		}
		if err = c.readRest(&raw, body); err != nil {
			done()
			return nil, unread(err, largeBody)
		}
	}
	if err := decode(raw.Bytes(), v); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// readRest reads the rest of a body in time.
func (c *call) readRest(raw *bytes.Buffer, body io.Reader) error {
	control := http.NewResponseController(c.w)
	end := time.Now().Add(readTimeout)
	for {
		step := time.Now().Add(bodyStep)
		if step.After(end) {
			step = end
		}
		if err := control.SetReadDeadline(step); err != nil {
			return err
		}
		_, err := io.CopyN(raw, body, smallBody)
		if err == io.EOF {
			// Both run since the request began, and reading goes on: it tells that the client has gone.
			later := time.Now().Add(writeTimeout)
			return errors.Join(control.SetReadDeadline(later), control.SetWriteDeadline(later))
		}
		if err != nil {
			return err
		}
	}
}
