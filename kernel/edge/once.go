package edge

import (
	"context"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
)

// Call is a call of a client that changes something, over all links of its connection. A
// host that is asked again, as its answer was lost with the link, answers what it has done.
type Call struct {
	ID    uint64 // in its connection, from 1
	Below uint64 // calls with lower ids are over
	Again bool   // nobody knows what it has come to over an earlier link
}

type callKey struct{}

// CallOf returns the call that a method of a Link is called for, if it is one.
func CallOf(ctx context.Context) (c Call, ok bool) {
	c, ok = ctx.Value(callKey{}).(Call)
	return c, ok
}

// calls are the calls of a connection that are under way. Its connection's mutex guards it.
type calls struct {
	last uint64
	open []uint64 // ascending
}

func (c *Conn) beginCall() Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls.last++
	c.calls.open = append(c.calls.open, c.calls.last)
	return Call{ID: c.calls.last, Below: c.calls.open[0]}
}

func (c *Conn) endCall(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls.open = slices.DeleteFunc(c.calls.open, func(open uint64) bool { return open == id })
}

// doOnce is do for what is not to be done twice, as somebody else may have undone it in
// between. It is not for what is in the connection's memory: that is made anew with the
// next link, whatever the call has come to.
func (c *Conn) doOnce(ctx context.Context, fn func(context.Context, *link) error) error {
	call := c.beginCall()
	defer c.endCall(call.ID)
	return c.do(ctx, func(l *link) error {
		err := fn(context.WithValue(ctx, callKey{}, call), l)
		call.Again = call.Again || kernel.CodeOf(err) == kernel.CodeUnknown
		return err
	})
}

// remove is doOnce for what is deleted, or do if the connection's memory has it.
func (c *Conn) remove(ctx context.Context, has func(*memory) bool, fn func(context.Context, *link) error) error {
	c.mu.Lock()
	here := has(&c.memory)
	c.mu.Unlock()
	if here {
		return c.do(ctx, func(l *link) error { return fn(ctx, l) })
	}
	return c.doOnce(ctx, fn)
}
