package log

import (
	"fmt"
	"sort"

	"github.com/trivium-mq/trivium/storage/record"
	"github.com/trivium-mq/trivium/storage/segment"
)

// EpochEnd answers Kafka's OffsetForLeaderEpoch (KIP-101, KIP-320): the
// highest leader epoch at or below the given one of which records are stored,
// and the offset where it ends: the first of a later epoch, or End. Without
// such an epoch the result is -1 and Start. Epochs only rise with the
// offsets, so it searches and reads few batches.
func (p *Partition) EpochEnd(epoch int32) (found int32, end int64, err error) {
	for try := 1; ; try++ {
		w := walker{p: p, snapshot: p.snapshot()}
		found, end, err = w.epochEnd(epoch)
		if err == nil || !stale(err) || try == maxTries {
			if err != nil {
				err = fmt.Errorf("log: partition %d, epoch %d: %w", p.id, epoch, err)
			}
			return found, end, err
		}
	}
}

func (w *walker) epochEnd(epoch int32) (found int32, end int64, err error) {
	if w.dropped {
		return 0, 0, ErrDropped
	}
	if w.absent {
		return 0, 0, &Gap{First: w.start, Last: w.end - 1}
	}
	// The first reference of the head that is later; what is before it decides.
	i := sort.Search(len(w.head), func(i int) bool { return w.head[i].body.epoch > epoch })
	end = w.end
	if i < len(w.head) {
		end = w.head[i].base
	}
	if i > 0 {
		return w.head[i-1].body.epoch, end, nil
	}
	for w.run = len(w.runs) - 1; w.run >= 0; w.run-- {
		first, err := w.epochAt(0)
		if err != nil {
			return 0, 0, err
		}
		if first > epoch {
			end = w.entry.Base
			continue
		}
		return w.epochInRun(epoch, end)
	}
	return -1, max(w.start, end), nil
}

// epochInRun searches the present run, whose first batch is not later.
func (w *walker) epochInRun(epoch int32, end int64) (int32, int64, error) {
	lo, hi := 0, int(w.runs[w.run].Entries) // lo is not later; hi, if there, is
	for hi-lo > 1 {
		mid := int(uint(lo+hi) >> 1)
		at, err := w.epochAt(mid)
		if err != nil {
			return 0, 0, err
		}
		if at <= epoch {
			lo = mid
		} else {
			hi = mid
			end = w.entry.Base
		}
	}
	found, err := w.epochAt(lo)
	return found, max(w.start, end), err
}

// epochAt is the leader epoch of batch i of the present run.
func (w *walker) epochAt(i int) (int32, error) {
	if err := w.open(i / segment.PageEntries); err != nil {
		return 0, err
	}
	if err := w.setEntry(i % segment.PageEntries); err != nil {
		return 0, err
	}
	header, _, err := w.records()
	if err != nil {
		return 0, err
	}
	return record.LeaderEpoch(header), nil
}
