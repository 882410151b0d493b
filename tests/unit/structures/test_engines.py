"""A table without transactions gets InnoDB, with the options that InnoDB understands."""

import pytest

from unshard.core.structures.storageclauses import with_transactions

HEAD = "CREATE TABLE `t` (\n  `id` int(11) NOT NULL COMMENT 'ENGINE=MyISAM',\n  PRIMARY KEY (`id`) KEY_BLOCK_SIZE=8\n) "


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ENGINE=MyISAM DEFAULT CHARSET=latin1", "ENGINE=InnoDB DEFAULT CHARSET=latin1"),
        ("ENGINE=Aria PAGE_CHECKSUM=1 ROW_FORMAT=PAGE TRANSACTIONAL=1 CHECKSUM=1", "ENGINE=InnoDB CHECKSUM=1"),
        ("ENGINE=MyISAM ROW_FORMAT=FIXED COMMENT='ROW_FORMAT=FIXED'", "ENGINE=InnoDB COMMENT='ROW_FORMAT=FIXED'"),
        ("ENGINE=MRG_MyISAM INSERT_METHOD=LAST UNION=(`a`,`b`)", "ENGINE=InnoDB"),
        ("ENGINE=MyISAM DATA DIRECTORY='/a' INDEX DIRECTORY='/b' KEY_BLOCK_SIZE=4", "ENGINE=InnoDB"),
        (
            "ENGINE=MyISAM\n PARTITION BY HASH (`id`)\n(PARTITION `a` COMMENT = 'ENGINE = Aria' ENGINE = MyISAM,"
            "\n PARTITION `ENGINE` ENGINE = MyISAM)",
            "ENGINE=InnoDB\n PARTITION BY HASH (`id`)\n(PARTITION `a` COMMENT = 'ENGINE = Aria' ENGINE = InnoDB,"
            "\n PARTITION `ENGINE` ENGINE = InnoDB)",
        ),
        ("ENGINE=InnoDB ROW_FORMAT=COMPRESSED", "ENGINE=InnoDB ROW_FORMAT=COMPRESSED"),
        ("ENGINE=ROCKSDB", "ENGINE=ROCKSDB"),
        ("DEFAULT CHARSET=latin1", "DEFAULT CHARSET=latin1"),
    ],
)
def test_the_engine_is_replaced_with_its_storage_options(old: str, new: str) -> None:
    assert with_transactions(HEAD + old) == HEAD + new
