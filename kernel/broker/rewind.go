package broker

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
)

// RewindGroup moves the group of a queue or share address to another place in all
// partitions of its topic, forward too: what is below is settled, the rest is
// delivered again as far as it is still there. Consumers stay; what is in flight
// is void, and settling it has no effect. The permission is that of consuming.
// CodeNotFound, CodeAccessRefused, CodeInvalid.
func (c *Conn) RewindGroup(ctx context.Context, name string, to kernel.Position) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	if to.Kind < kernel.AtStart || to.Kind > kernel.AtTime || to.Value < 0 {
		return kernel.Errorf(kernel.CodeInvalid, "position", "", "start, end, an offset or a time from 0 on is needed")
	}
	addr, err := c.Address(name)
	if err == nil {
		err = c.allowGroup(addr)
	}
	if err != nil {
		return err
	}
	if _, err := c.topicOf(addr); err != nil {
		return err
	}
	g, ok := c.tenant.find(addr)
	if !ok {
		return c.tenant.noQueue(name)
	}
	cctx, cancel := c.b.changeContext()
	defer cancel()
	return g.place.Rewind(cctx, g.id, to)
}
