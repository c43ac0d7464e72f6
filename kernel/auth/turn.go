package auth

import (
	"context"
	"slices"
)

const (
	// checksOfLine is how many attempts of one address, or of one user who is
	// known there, are looked at side by side.
	checksOfLine = 4
	// queued times ThrottleLimits.WaitingPerClient attempts wait for that at most.
	queued = 16
)

// take begins to look at an attempt if its line has a slot and its user at that
// address is not being looked at too often: while he has free failures left as
// often as those are, and one after the other then, so that each knows how the
// ones before it went. Throttle.mu is held.
func (t *Throttle) take(a *Attempt) bool {
	if a.line.checks >= checksOfLine || a.own.mine >= max(1, freeOfPair+1-a.own.failures) {
		return false
	}
	a.line.checks++
	a.own.mine++
	a.has = true
	return true
}

// give ends looking at an attempt, if that had begun, and lets others have their
// turn. Throttle.mu is held.
func (a *Attempt) give() {
	if !a.has {
		return
	}
	a.has = false
	a.line.checks--
	a.own.mine--
	a.t.next(a.client)
	a.t.next(a.own) // he may have become known meanwhile
}

// next gives slots of a line to those who wait for one.
func (t *Throttle) next(line *record) {
	for i := 0; i < len(line.queue) && line.checks < checksOfLine; {
		a := line.queue[i]
		if !t.take(a) {
			i++
			continue
		}
		line.queue = slices.Delete(line.queue, i, i+1)
		close(a.turn)
	}
}

// queue waits for the turn of an attempt. Throttle.mu is held, but not meanwhile.
func (t *Throttle) queue(ctx context.Context, a *Attempt) error {
	a.turn = make(chan struct{})
	a.line.queue = append(a.line.queue, a)
	t.stats.Waiting.Add(1)
	t.mu.Unlock()
	var err error
	select {
	case <-a.turn:
	case <-ctx.Done():
		err = ctx.Err()
	}
	t.mu.Lock()
	t.stats.Waiting.Add(-1)
	if i := slices.Index(a.line.queue, a); i >= 0 {
		a.line.queue = slices.Delete(a.line.queue, i, i+1)
	}
	return err
}
