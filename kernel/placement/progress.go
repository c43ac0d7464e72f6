package placement

// Progress is how far a share group has come in one partition.
type Progress struct {
	Partition  int32
	Start, End int64 // of the partition: the first readable offset, the next to be given
	Floor      int64 // everything below is settled
	Unsettled  int64 // records not settled
}

// Progress returns how far a share group has come, by partition: CodeNotFound.
// It asks the group's goroutine.
func (g *Group) Progress(id GroupID) ([]Progress, error) {
	sh := g.machine.share(id)
	if sh == nil {
		return nil, noGroup(id)
	}
	var list []Progress
	err := error(noGroup(id))
	sh.topic.shard.call(func() {
		if sh.gone {
			return
		}
		err, list = nil, make([]Progress, 0, len(sh.windows))
		for _, w := range sh.windows {
			end := w.part.log.End()
			list = append(list, Progress{
				Partition: w.part.index, Start: w.part.log.Start(), End: end, Floor: w.Floor(), Unsettled: w.Unsettled(end),
			})
		}
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}
