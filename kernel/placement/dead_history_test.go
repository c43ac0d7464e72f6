package placement

import (
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// simLimited is the topic of a history whose group has limits: its records die of
// all reasons, and their dead letters go to a partition of its own, the tomb.
const simLimited = 3

func simLimits() *kernel.Limits {
	l := kernel.NoLimits()
	l.MessageTTL, l.MaxLength, l.DeliveryLimit, l.DeadLetter = time.Second, 6, 2, true
	return &l
}

// digTomb makes the partition that dead letters go to.
func (h *history) digTomb() bool {
	res, ok := h.do(createPartitionsCommand(topicN(90), []PartitionSpec{{Retention: kernel.RetainDay}}, 1))
	if ok {
		h.tomb = PartitionID(res.ids[0])
	}
	return ok
}

// burying is the completion of a dead letter in a history.
type burying struct {
	h *history
	b *Burial
	i int
}

// bury is Config.Bury: the copy first, then the record may be archived.
func (h *history) bury(b *Burial) {
	for i := range b.Letters {
		if !h.last && h.rng.Intn(10) == 0 { // it is tried again
			b.Done(i, true)
			continue
		}
		r := b.Letters[i].Record.Record()
		if err := h.g.Append(h.g.Targets(h.tomb), &r, &burying{h, b, i}, 0); err != nil {
			b.Done(i, true)
		}
	}
}

func (d *burying) Completed(_ uint64, res kernel.Result) {
	h, v := d.h, d.b.Letters[d.i].Record
	if res.Err == nil {
		h.seen.buried++
		h.buried[numberOf(v)] = true
		for _, g := range h.model.groupList {
			if g.dying { // from here on it may be settled, and not before
				g.acked[place{h.limited, v.Offset}] = true
			}
		}
	}
	d.b.Done(d.i, res.Err != nil)
}

func (d *burying) Flush() {}

// checkTomb: a dead letter that was confirmed is there. What is archived without
// one shows in checkWindow; so no record is lost, and each is settled by a member,
// in the tomb, or still in its group.
func (h *history) checkTomb() {
	p := h.g.machine.parts[h.tomb]
	if p == nil {
		return
	}
	there := make(map[uint64]bool)
	c := p.log.Cursor()
	for {
		v, err := c.Next()
		if h.left != nil {
			return
		}
		if err != nil {
			h.failf("tomb: %v", err)
			return
		}
		if v == nil {
			break
		}
		there[numberOf(v)] = true
	}
	for n := range h.buried {
		if !there[n] {
			h.failf("the dead letter of record %d was confirmed and is gone", n)
		}
	}
}
