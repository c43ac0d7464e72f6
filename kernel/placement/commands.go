package placement

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
)

// do logs a command, which changes what holds back records of topics (see changes), and
// waits for its result. A ctx that ends leaves the outcome unknown. Every command may be
// repeated.
func (g *Group) do(ctx context.Context, body []byte, topics ...kernel.TopicID) (commandResult, error) {
	ch, err := g.prop.command(body, topics...)
	if err != nil {
		return commandResult{}, err
	}
	return result(ctx, ch)
}

// result waits for the result of a command.
func result(ctx context.Context, ch <-chan commandResult) (commandResult, error) {
	select {
	case res := <-ch:
		return res, res.err
	case <-ctx.Done():
		return commandResult{}, kernel.Errorf(kernel.CodeUnknown, "", "", "the outcome was not waited for: %v", ctx.Err())
	}
}

// CreatePartitions makes the partitions of a topic that do not exist yet and
// returns the ids of all those asked for, in their order. CodeLimit: the disk is
// too low for a new topic.
func (g *Group) CreatePartitions(ctx context.Context, topic kernel.TopicID, specs []PartitionSpec, revision uint64) ([]PartitionID, error) {
	if len(specs) == 0 || len(specs) > maxPartitions {
		return nil, kernel.Errorf(kernel.CodeInvalid, "topic", topic.String(), "it may have 1 to %d partitions", maxPartitions)
	}
	for _, s := range specs {
		if s.Index < 0 || s.Retention.Age < 0 || s.Retention.Bytes < 0 {
			return nil, kernel.Errorf(kernel.CodeInvalid, "topic", topic.String(), "negative partition number or age")
		}
	}
	if g.disk.low.Load() && g.machine.topic(topic) == nil {
		return nil, errLowDisk
	}
	res, err := g.do(ctx, createPartitionsCommand(topic, specs, revision))
	if err != nil {
		return nil, err
	}
	ids := make([]PartitionID, len(res.ids))
	for i, id := range res.ids {
		ids[i] = PartitionID(id)
	}
	return ids, nil
}

// DropTopic removes a topic with its groups. Members get Ended, readers
// CodeDropped; late publishes to it are acknowledged and discarded. A missing
// one is no error.
func (g *Group) DropTopic(ctx context.Context, topic kernel.TopicID, revision uint64) error {
	_, err := g.do(ctx, topicCommand(cmdDropTopic, topic, revision))
	return err
}

// SetRetention replaces the retention of all partitions of a topic, unless a
// command of a higher revision was there before.
func (g *Group) SetRetention(ctx context.Context, topic kernel.TopicID, r kernel.Retention, revision uint64) error {
	_, err := g.do(ctx, setRetentionCommand(topic, r, revision), topic)
	return err
}

// CreateGroup makes a share group, or returns the id of the one that has the
// same address on the same topic, whatever its other properties. CodeNotFound:
// the topic is not here. CodeLimit: the disk is too low for a new one.
func (g *Group) CreateGroup(ctx context.Context, spec GroupSpec, revision uint64) (GroupID, error) {
	a := spec.Address
	if len(a.Tenant) > maxName || len(a.Group) > maxName || len(a.Topic) > maxName {
		return 0, kernel.Errorf(kernel.CodeInvalidName, "group", a.Group, "its name is too long")
	}
	if spec.FailedLimit < 0 || spec.AcquiredLimit < 0 || spec.MaxAcquired < 0 || spec.FailedLimit > 0 && spec.AcquiredLimit > 0 {
		return 0, kernel.Errorf(kernel.CodeInvalid, "group", a.Group, "its limits are not valid")
	}
	if g.disk.low.Load() && !g.machine.hasGroup(spec.Topic, a) {
		return 0, errLowDisk
	}
	cmd, err := g.createCommand(spec, revision)
	if err != nil {
		return 0, err
	}
	res, err := g.do(ctx, cmd, spec.changing()...)
	if err != nil {
		return 0, err
	}
	id := GroupID(res.ids[0])
	if spec.Limits != nil {
		g.takenIn(id)
	}
	return id, nil
}

// SetOwner changes whether a group holds back deletion: CodeNotFound.
func (g *Group) SetOwner(ctx context.Context, id GroupID, owner bool) error {
	sh := g.machine.share(id)
	if sh == nil {
		return noGroup(id)
	}
	_, err := g.do(ctx, setOwnerCommand(id, owner), sh.topic.id)
	return err
}

// DropGroup removes a share group. Its members get Ended. A missing one is no
// error.
func (g *Group) DropGroup(ctx context.Context, id GroupID, revision uint64) error {
	_, err := g.do(ctx, dropGroupCommand(id, revision))
	return err
}

// Purge archives what a group has ready and returns how many records that
// were: CodeNotFound. Held records stay with their holders.
func (g *Group) Purge(ctx context.Context, id GroupID) (int64, error) {
	sh := g.machine.share(id)
	if sh == nil {
		return 0, noGroup(id)
	}
	var n int64
	err := error(errStopped)
	s := sh.topic.shard
	s.call(func() {
		n, err = s.purge(sh)
	})
	if err != nil {
		return 0, err
	}
	// The settlements were proposed before this barrier, so they are applied
	// when it is.
	if _, err := g.do(ctx, barrierCommand()); err != nil {
		return 0, err
	}
	return n, nil
}
