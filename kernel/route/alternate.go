package route

import "github.com/trivium-mq/trivium/kernel"

// SetAlternate says where messages go that no binding of an exchange matches, ""
// = nowhere. The exchange's own argument comes before it.
func (t *Table) SetAlternate(exchange, alternate string) *Table {
	old, ok := t.exchanges.Get(exchange)
	if !ok {
		return t
	}
	if own := old.Text(kernel.ArgAlternate); own != "" {
		alternate = own
	}
	if old.alternate == alternate {
		return t
	}
	e := *old
	e.alternate = alternate
	c := *t
	c.exchanges = c.exchanges.Put(exchange, &e)
	return &c
}
