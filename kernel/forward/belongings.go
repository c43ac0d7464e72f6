package forward

import (
	"context"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// SetWill implements edge.Session.
func (a *attached) SetWill(ctx context.Context, w *kernel.Will) error {
	return a.call(ctx, methodSetWill, func(b []byte) []byte { return appendWill(b, w) }, nil)
}

// DropWill implements edge.Session.
func (a *attached) DropWill() error { return a.call(context.Background(), methodDropWill, nil, nil) }

// Release implements edge.Session. It waits while too many calls are under way.
func (a *attached) Release(numbers []uint16, done func(unknown []uint16, err error)) {
	var unknown []uint16
	a.ask(methodRelease, func(b []byte) []byte { return appendNumbers(b, numbers) },
		func(r *reader) { unknown = r.numbers(nil) },
		func(err error) { done(unknown, err) })
}

// PinNumber implements edge.Session. It waits while too many calls are under way. done
// hears all errors.
func (a *attached) PinNumber(id kernel.PinID, done kernel.Completion) error {
	a.ask(methodPinNumber, func(b []byte) []byte { return appendPinID(b, id) }, nil, func(err error) {
		done.Completed(uint64(id.Number), kernel.Result{Offset: -1, Err: err})
		done.Flush()
	})
	return nil
}

// ask calls a method, and has then called with the outcome.
func (a *attached) ask(m method, args func(b []byte) []byte, values func(r *reader), then func(error)) {
	c := &call{values: values, then: then}
	if _, err := a.link.begin(context.Background(), a, m, args, c); err != nil {
		then(err)
	}
}

// Pins implements edge.Session.
func (a *attached) Pins(ctx context.Context) (list []broker.SessionPin, err error) {
	err = a.call(ctx, methodPins, nil, func(r *reader) { list = r.pins() })
	if err != nil {
		return nil, err
	}
	return list, nil
}

// Unpin implements edge.Session.
func (a *attached) Unpin(id kernel.PinID) {
	l := a.link
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if a.held() != nil {
		return
	}
	start := l.out.begin(kindUnpinNumber)
	l.out.buf = appendPinID(l.out.buf, id)
	l.out.end(start)
}

// Keep implements edge.Session. More than 16 MiB are not kept.
func (a *attached) Keep(b []byte) {
	if len(b) <= maxKept {
		_ = a.call(context.Background(), methodKeep, func(to []byte) []byte { return appendBytes(to, b) }, nil)
	}
}

// Kept implements edge.Session.
func (a *attached) Kept() (text []byte, err error) {
	err = a.call(context.Background(), methodKept, nil, func(r *reader) { text = slices.Clone(r.bytes()) })
	return text, err
}
