//! Where things went wrong, by how: the stages of a commit, of a create and of a load, and the ways to go wrong.

use serde::{Deserialize, Serialize};
use session_tree::Stage;

use super::{CaseReport, Report, Status};
use crate::fault::{Kind, Plan};

/// The stages of one thing that a store does.
#[derive(Debug)]
pub struct Table {
    /// What it does.
    pub name: &'static str,
    /// In order.
    pub stages: &'static [Stage],
}

/// One table for a commit and its roll back, one for a create, one for a load.
pub const TABLES: [Table; 3] = [
    Table {
        name: "commit",
        stages: &[
            Stage::C1,
            Stage::C2,
            Stage::C3,
            Stage::C4,
            Stage::C5,
            Stage::C6,
            Stage::C7,
            Stage::C8,
            Stage::C9,
            Stage::C10,
            Stage::C11,
            Stage::C12,
            Stage::C20,
        ],
    },
    Table {
        name: "create",
        stages: &[
            Stage::K1,
            Stage::K2,
            Stage::K3,
            Stage::K4,
            Stage::K5,
            Stage::K6,
            Stage::K7,
            Stage::K8,
            Stage::K9,
        ],
    },
    Table { name: "load", stages: &[Stage::V1, Stage::V2, Stage::V3, Stage::V4, Stage::V5, Stage::V6] },
];

/// A way to go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Row {
    /// A call fails without effect.
    FailsBefore,
    /// A call fails with effect.
    FailsAfter,
    /// A transfer is cut short, or makes no progress.
    Short,
    /// A lock is held by somebody else.
    Held,
    /// Somebody else acts.
    Actor,
    /// The process is killed.
    Killed,
    /// A second fault strikes the handling of the first.
    Twice,
    /// The power is cut.
    PowerCut,
}

impl Row {
    /// Every row.
    pub const ALL: [Row; 8] = [
        Row::FailsBefore,
        Row::FailsAfter,
        Row::Short,
        Row::Held,
        Row::Actor,
        Row::Killed,
        Row::Twice,
        Row::PowerCut,
    ];

    /// The row's words.
    pub const fn words(self) -> &'static str {
        match self {
            Row::FailsBefore => "fails before",
            Row::FailsAfter => "fails after",
            Row::Short => "short transfer",
            Row::Held => "lock held",
            Row::Actor => "outside actor",
            Row::Killed => "killed",
            Row::Twice => "fails twice",
            Row::PowerCut => "power cut",
        }
    }

    /// The row of what was planned.
    pub fn of(plan: &Plan) -> Row {
        match plan.0.as_slice() {
            [only] => match only.kind {
                Kind::Before(_) | Kind::SyncDrops(_) => Row::FailsBefore,
                Kind::After(_) | Kind::SyncLies => Row::FailsAfter,
                Kind::Short | Kind::ShortThen(_) | Kind::NoProgress => Row::Short,
                Kind::Held => Row::Held,
                Kind::Actor(_) => Row::Actor,
                Kind::KillBefore | Kind::KillAfter => Row::Killed,
            },
            _ => Row::Twice,
        }
    }
}

/// The cases of one way to go wrong at one stage; for power cuts the cuts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// How many there are.
    pub cases: usize,
    /// How many of them failed, as expected or not.
    pub failed: usize,
}

impl Cell {
    fn count(&mut self, case: &CaseReport) {
        self.cases += 1;
        self.failed += usize::from(case.fails() || case.status == Status::ExpectedFailure);
    }

    pub(super) fn add(&mut self, other: Cell) {
        self.cases += other.cases;
        self.failed += other.failed;
    }
}

impl Table {
    /// The cells of a report, row by row; none where it has no case for this table.
    pub fn cells(&self, report: &Report) -> Option<Vec<(Row, Vec<Cell>)>> {
        let mut rows: Vec<(Row, Vec<Cell>)> =
            Row::ALL.iter().map(|row| (*row, vec![Cell::default(); self.stages.len()])).collect();
        let mut cell = |stage: &str, at: Row, add: &dyn Fn(&mut Cell)| {
            let column = self.stages.iter().position(|it| it.id() == stage);
            let row = rows.iter_mut().find(|(row, _)| *row == at);
            if let (Some(column), Some((_, cells))) = (column, row) {
                add(&mut cells[column]);
            }
        };
        for case in &report.cases {
            if let (Some(stage), Some(disturbance)) = (&case.stage, case.disturbance) {
                cell(stage, disturbance, &|cell| cell.count(case));
            }
        }
        for (stage, cuts) in &report.summary.tally.cuts_by_stage {
            cell(stage, Row::PowerCut, &|cell| cell.add(*cuts));
        }
        rows.retain(|(_, cells)| cells.iter().any(|cell| cell.cases > 0));
        (!rows.is_empty()).then_some(rows)
    }

    /// A stage in a word or two.
    pub fn words(stage: Stage) -> &'static str {
        match stage {
            Stage::C2 | Stage::K2 => "create",
            Stage::C3 => "write",
            Stage::C4 => "fsync",
            Stage::C5 | Stage::C7 | Stage::C9 => "verify",
            Stage::C6 => "link",
            Stage::C10 | Stage::C12 | Stage::K7 | Stage::K9 => "dsync",
            Stage::C11 | Stage::K8 => "unlink",
            Stage::C20 => "undo",
            Stage::V6 => "again",
            other => other.words(),
        }
    }
}
