package broker

import "github.com/trivium-mq/trivium/kernel"

// allowBinding checks what a binding's two ends ask for: write at the
// destination, read at the source, and at a topic exchange read on the key.
func (c *Conn) allowBinding(b *kernel.Binding) error {
	kind := KindQueue
	if b.ToExchange {
		kind = KindExchange
	}
	if err := c.allow(kernel.Write, kind, b.Queue); err != nil {
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

// allowAlternate checks that the user could himself take records out of a new
// exchange and put them into its alternate.
func (c *Conn) allowAlternate(x *kernel.Exchange) error {
	alternate := x.Text(kernel.ArgAlternate)
	if alternate == "" {
		return nil
	}
	if err := c.allow(kernel.Read, KindExchange, x.Name); err != nil {
		return err
	}
	return c.allow(kernel.Write, KindExchange, alternate)
}
