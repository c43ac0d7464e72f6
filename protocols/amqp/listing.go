package amqp

import (
	"cmp"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
)

// addChannel and dropChannel change the table of open channels. It is the
// reader's, which reads it without the lock; listings read it with.
func (c *conn) addChannel(ch *channel) {
	c.out.mu.Lock()
	c.channels[ch.id] = ch
	c.out.mu.Unlock()
}

func (c *conn) dropChannel(id uint16) {
	c.out.mu.Lock()
	delete(c.channels, id)
	c.last = nil
	c.out.mu.Unlock()
}

// Channels implements kernel.ChannelLister.
func (c *conn) Channels() []kernel.ChannelStatus {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	list := make([]kernel.ChannelStatus, 0, len(c.channels))
	for _, ch := range c.channels {
		s := kernel.ChannelStatus{
			Number: int(ch.id), Consumers: len(ch.consumers), Unsettled: ch.unacked.len(), Confirms: ch.confirming.Load(),
		}
		for _, k := range ch.consumers {
			s.Prefetch = max(s.Prefetch, k.prefetch)
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b kernel.ChannelStatus) int { return cmp.Compare(a.Number, b.Number) })
	return list
}
