package broker

import "github.com/trivium-mq/trivium/kernel"

// allowBinding checks what a binding's two ends ask for: write at the
// destination, read at the source, and at a topic exchange read on the key.
func (c *Conn) allowBinding(b *kernel.Binding) error {
	if err := c.allow(kernel.Write, KindQueue, b.Queue); err != nil {
		return err
	}
	if err := c.allow(kernel.Read, KindExchange, b.Exchange); err != nil {
		return err
	}
	if x, _, ok := c.tenant.table.Load().Exchange(b.Exchange); ok && x.Type == kernel.Topics {
		return c.allowKey(kernel.Read, b.Exchange, b.Key)
	}
	return nil
}
