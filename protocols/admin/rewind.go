package admin

import (
	"strconv"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// rewindBody says where a group is to go on: "start", "end", an offset, or a time
// as in RFC 3339.
type rewindBody struct {
	To string `json:"to"`
}

func (b *rewindBody) position() (p kernel.Position, err error) {
	switch b.To {
	case "start", "earliest", "first":
		return kernel.Position{Kind: kernel.AtStart}, nil
	case "end", "latest", "next":
		return kernel.Position{Kind: kernel.AtEnd}, nil
	}
	if n, err := strconv.ParseInt(b.To, 10, 64); err == nil {
		return kernel.Position{Kind: kernel.AtOffset, Value: n}, nil
	}
	at, err := time.Parse(time.RFC3339, b.To)
	if err != nil {
		return p, kernel.Errorf(kernel.CodeInvalid, "to", b.To, "it is start, end, an offset or a time such as 2026-01-31T12:00:00Z")
	}
	return kernel.Position{Kind: kernel.AtTime, Value: at.UnixMilli()}, nil
}

// rewindGroup is POST /api/groups/{vhost}/{name}/rewind.
func rewindGroup(c *call) error {
	var body rewindBody
	if err := c.read(&body); err != nil {
		return err
	}
	to, err := body.position()
	if err != nil {
		return err
	}
	err = c.within(c.args[0], func(conn *broker.Conn) error {
		return conn.RewindGroup(c.r.Context(), c.args[1], to)
	})
	if err != nil {
		return err
	}
	return c.gone()
}
