package placement

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
)

// createCommand returns the command that makes a group. Where it begins is looked
// up here, by the leader: replicas apply offsets.
func (g *Group) createCommand(spec GroupSpec, revision uint64) ([]byte, error) {
	if spec.Limits != nil {
		if err := checkLimits(spec.Limits); err != nil {
			return nil, err
		}
	}
	switch spec.Start.Kind {
	case kernel.AtStart, kernel.AtEnd: // which the machine knows to the record
		spec.FromStart, spec.Start.Kind = spec.Start.Kind == kernel.AtStart, 0
	}
	if spec.Start.Kind == 0 {
		if spec.Limits == nil {
			return createGroupCommand(spec, revision), nil
		}
		return createLimitedCommand(spec, revision), nil
	}
	t := g.machine.table.topic(spec.Topic)
	if t == nil {
		return nil, noTopic(spec.Address.Topic)
	}
	offsets, err := g.machine.positions(t, spec.Start)
	if err != nil {
		return nil, err
	}
	return createPlacedCommand(spec, offsets, revision), nil
}

func noTopic(name string) error {
	return kernel.Errorf(kernel.CodeNotFound, "topic", name, "it is not in the placement group")
}

// createPlacedCommand makes a group that begins at the offsets of the partitions,
// by their index.
func createPlacedCommand(spec GroupSpec, offsets map[int32]int64, revision uint64) []byte {
	b := binary.AppendUvarint([]byte{cmdCreatePlaced}, revision)
	b = appendBool(appendGroupSpec(b, spec), spec.Limits != nil)
	if spec.Limits != nil {
		b = appendLimits(b, spec.Limits)
	}
	b = binary.AppendUvarint(b, uint64(len(offsets)))
	for _, index := range slices.Sorted(maps.Keys(offsets)) {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(index)), uint64(offsets[index]))
	}
	return b
}

func (m *machine) createPlaced(d *decoder) commandResult {
	revision, spec := d.uvarint(), d.groupSpec()
	if d.bool() {
		spec.Limits = d.limits()
	}
	offsets := make(map[int32]int64)
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		index := int32(d.int(math.MaxInt32))
		offsets[index] = d.offset()
	}
	return m.makeGroup(d, spec, offsets, revision)
}
